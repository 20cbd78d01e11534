"""Random latents of a generator: how far they spread, and which one to start a search from."""

import math
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.datasets.progress import bar
from gloam.generators import Generator

if TYPE_CHECKING:
    from gloam.domains.latent_illumination import LatentIllumination

# Of the paper's released experiment.
_NUM_SAMPLES = 10_000
_START_BATCH = 16
_START_TRUNCATION = 0.7
_FREE_SHARE = 0.35


def spherical_distance(rows: Float[Array, "n d"], target: Float[Array, " d"]) -> Float[Array, " n"]:
    """``2 arcsin(|a - b| / 2)^2`` of vectors of length one: half the squared angle between them.

    Example:
        >>> right = spherical_distance(jnp.array([[1.0, 0.0]]), jnp.array([0.0, 1.0]))
        >>> bool(jnp.isclose(right[0], 0.5 * (jnp.pi / 2) ** 2))
        True
    """
    half_chord = jnp.linalg.norm(rows - target, axis=1) / 2
    # Rounding may make the chord of opposite vectors longer than the diameter.
    return 2 * jnp.square(jnp.arcsin(jnp.minimum(half_chord, 1.0)))


def statistics(
    generator: Generator, *, key: PRNGKeyArray
) -> tuple[Float[Array, " sol"], Float[Array, ""]]:
    """Standard deviation of w in each dimension, and the norm that costs nothing."""

    @eqx.filter_jit
    def measured(generator: Generator, key: PRNGKeyArray) -> tuple[Array, Array]:
        w = generator.map(jax.random.normal(key, (_NUM_SAMPLES, generator.z_dim)))
        scale = jnp.std(w, axis=0, ddof=1)
        norms = jnp.linalg.norm((w - generator.w_avg) / scale, axis=1)
        return scale, _FREE_SHARE * math.sqrt(generator.num_ws) * jnp.mean(norms)

    scale, free_norm = measured(generator, key)
    usable = bool(jnp.all(jnp.isfinite(scale) & (scale > 0)))
    checks.expect(
        usable,
        "generator",
        "latents that vary in every dimension",
        "a standard deviation of zero or NaN",
        "Check the generator's weights.",
    )
    return scale, free_norm


def best_start(
    domain: "LatentIllumination", num_starts: int, *, key: PRNGKeyArray, progress: bool
) -> Float[Array, " sol"]:
    """The truncated random latent whose image is nearest to the prompt.

    Without a prompt, the one whose objective is best.

    Args:
        domain: What will be searched; its own start does not count.
        num_starts: Number of latents, in batches of up to 16.
        key: Key of the latents.
        progress: Whether to show a bar.
    """

    @eqx.filter_jit
    def best(domain: "LatentIllumination", key: PRNGKeyArray) -> tuple[Array, Array]:
        z = jax.random.normal(key, (min(_START_BATCH, num_starts), domain.generator.z_dim))
        w = domain.generator.map(z, _START_TRUNCATION)
        rows = (w - domain.generator.w_avg) / domain.scale
        objectives, embeddings = domain(rows)
        if domain.prompt is not None:
            objectives = -spherical_distance(embeddings, domain.prompt)
        chosen = jnp.argmax(jnp.where(jnp.isfinite(objectives), objectives, -jnp.inf))
        return rows[chosen], objectives[chosen]

    keys = jax.random.split(key, -(-num_starts // _START_BATCH))
    found = []
    with bar("choosing the start", len(keys), show=progress) as advance:
        for key in keys:
            row, objective = best(domain, key)
            found.append((float(objective), row))
            advance(1)
    return max(found, key=lambda pair: pair[0])[1]
