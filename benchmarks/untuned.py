"""Compare the default with other algorithms on three problems that were not used for tuning.

    python benchmarks/untuned.py --iterations 1000 --seeds 10

* **pendulum**: swing-up of a pendulum by a network of 66 weights. The measures are its final angle
  and speed and the mean torque, the objective is the mean height.
* **vectors**: the first 12 principal components of 1,797 images of scikit-learn's digits, and a
  fixed random network that maps 16 numbers to such vectors.
* **noisy**: 6D linear projection of a sphere of 60 numbers, with noise on every objective.

All algorithms have 180 evaluations per iteration, the same initial step size, and otherwise their
defaults. Prints mean and standard error of the QD score over seeds. With noise it is the corrected
one, of 100 new evaluations of each elite; the score that the search reported stands beside it.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.datasets import load_digits

import gloam
from gloam.archives import Archive

HIDDEN, STEPS = 13, 100
SIZES = {"num_emitters": 5, "batch_size": 36}
REPEATS = 100
"""Evaluations of each elite at the end of a run with noise."""


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


def algorithms(problem):
    """Build the default and the algorithms that it is compared with."""
    archive, x0, sigma0 = problem.archive(), np.asarray(problem.x0), problem.sigma0
    yield "DMS (default)", gloam.DMS(archive, x0, sigma0, batch_size=12)
    yield "DMS (paper)", gloam.DMS.paper(archive, x0, sigma0, **SIZES)
    yield "CMA-MAE", gloam.CMAMAE(archive, x0, sigma0, **SIZES)
    # The best noise for MAP-Elites is unknown: both are run, and the better one counts.
    for share in (0.2, 1.0):
        name = f"MAP-Elites (line), {share} sigma0"
        yield name, gloam.MAPElitesLine(archive, x0, share * sigma0, batch_size=180)


def main() -> None:
    """Run all pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=["pendulum", "vectors", "noisy"])
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="beginning of the names of algorithms to run")
    options = parser.parse_args()
    rows = []
    for name in options.problems:
        problem = {"pendulum": Pendulum, "vectors": Vectors, "noisy": Noisy}[name]()
        for label, algorithm in algorithms(problem):
            if not label.startswith(options.only):
                continue
            began = time.perf_counter()
            result = gloam.run(
                problem,
                algorithm,
                options.iterations,
                seeds=options.seeds,
                log_every=options.iterations,
                progress=False,
            )
            last, kind = result.metrics[result.metrics["iteration"] == options.iterations], ""
            if isinstance(problem, Noisy):
                last, kind = result.reevaluated(REPEATS).table, "corrected_"
            rows.append(
                {
                    "problem": name,
                    "algorithm": label,
                    "QD score": last[f"{kind}qd_score"].mean(),
                    "+-": last[f"{kind}qd_score"].sem(),
                    "coverage": last[f"{kind}coverage"].mean(),
                    "is corrected": bool(kind),
                    "reported QD score": last["qd_score"].mean(),
                    "seconds": time.perf_counter() - began,
                }
            )
            print(rows[-1], flush=True)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
