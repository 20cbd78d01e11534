"""Three problems of this project that were not used for tuning.

* **pendulum**: swing-up of a pendulum by a network of 66 weights. The measures are its final angle
  and speed and the mean torque, the objective is the mean height.
* **vectors**: the first 12 principal components of 1,797 images of scikit-learn's digits, and a
  fixed random network that maps 16 numbers to such vectors.
* **noisy**: 6D linear projection of a sphere of 60 numbers, with noise on every objective.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.datasets import load_digits

import gloam
from gloam.archives import Archive

HIDDEN, STEPS = 13, 100


class Pendulum(eqx.Module):
    """Swing-up of a pendulum by a network of one hidden layer, 5 seconds in steps of 0.05."""

    x0: jax.Array
    sigma0: float = 0.5

    def __init__(self):
        self.x0 = jnp.zeros(5 * HIDDEN + 1)

    def archive(self) -> Archive:
        """Archive over the final angle and speed, and the mean torque."""
        return gloam.GridArchive((16, 16, 8), lower=[-1, -8, 0], upper=[1, 8, 2])

    def __call__(self, weights: Float[Array, "batch sol"]):
        """Evaluate policies."""
        return jax.vmap(self._episode)(weights)

    def _episode(self, weights: Float[Array, " sol"]):
        inner, outer, bias = (
            weights[: 4 * HIDDEN].reshape(4, HIDDEN),
            weights[4 * HIDDEN : 5 * HIDDEN],
            weights[-1],
        )

        def step(state, _):
            angle, speed = state
            seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed / 8, 1.0])
            torque = 2 * jnp.tanh(jnp.tanh(seen @ inner) @ outer + bias)
            speed = jnp.clip(speed + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8, 8)
            angle = angle + 0.05 * speed
            return (angle, speed), (jnp.cos(angle), jnp.abs(torque))

        (angle, speed), (height, torque) = jax.lax.scan(step, (jnp.pi, 0.0), None, length=STEPS)
        measures = jnp.stack([jnp.sin(angle), speed, jnp.mean(torque)])
        return 1 + jnp.mean(height), measures


class Vectors(eqx.Module):
    """Vectors from a fixed random network; the cells are principal components of digits."""

    items: jax.Array
    inner: jax.Array
    outer: jax.Array
    x0: jax.Array
    sigma0: float = 0.5

    def __init__(self):
        pixels = load_digits().data.astype(np.float32) / 16
        centred = pixels - pixels.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        self.items = jnp.asarray(centred @ axes[:12].T)
        keys = jax.random.split(jax.random.key(12), 2)
        self.inner = jax.random.normal(keys[0], (16, 64)) / 4
        self.outer = jax.random.normal(keys[1], (64, 12)) / 4
        self.x0 = jnp.zeros(16)

    def archive(self) -> Archive:
        """Archive with one cell per item."""
        return gloam.CVTArchive(np.asarray(self.items), index="exact")

    def __call__(self, solutions: Float[Array, "batch sol"]):
        """Return the vectors; their similarity to the nearest item is maximised."""
        return jnp.sin(solutions @ self.inner) @ self.outer


class Noisy(eqx.Module):
    """A linear projection with noise on the objectives."""

    domain: gloam.domains.LinearProjection
    noise: float
    x0: jax.Array
    sigma0: float = 0.5

    def __init__(self, noise: float = 0.05):
        self.domain = gloam.domains.LinearProjection(6, solution_dim=60)
        self.noise = noise
        self.x0 = jnp.asarray(self.domain.x0)

    def archive(self) -> Archive:
        """Archive of 2,000 random centroids."""
        edge = 5.12 * self.x0.size / 6  # of a measure, which is the sum of a sixth of the numbers
        points = np.random.default_rng(0).uniform(-edge, edge, (2000, 6))
        return gloam.CVTArchive(points, index="exact")

    def __call__(self, solutions: Float[Array, "batch sol"], *, key: PRNGKeyArray):
        """Return noisy objectives, and measures."""
        objectives, measures = self.domain(solutions)[:2]
        return objectives + self.noise * jax.random.normal(key, objectives.shape), measures
