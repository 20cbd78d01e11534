"""Aimed moves: combinations of elites whose measures would be those of an empty cell."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals, uniforms
from gloam._tools.registry import register
from gloam.emitters.emitter import (
    Bounds,
    EliteEmitter,
    ElitesWanted,
    Outside,
    TargetsWanted,
    checked_start,
)
from gloam.emitters.recombination import checked_steps
from gloam.records import DrawsTargets, Proposal

# Number of targets of an iteration. Their solutions differ in the number of elites.
_NUM_TARGETS = 108
# Largest number of elites in a combination.
_MOST = 32
# Ridge that keeps the weights small, as a share of the mean squared distance from the target.
_RIDGE = 1e-3
# Number of steps of the solver.
_STEPS = 8
# Folded into the key for targets, for the numbers of elites, and for pairs of them.
_TARGETS, _SIZES, _PAIRS = 2**32 - 6, 2**32 - 7, 2**32 - 9


@register
class AimedMoves(EliteEmitter):
    """Combines elites near an empty cell so that their combined measures are its center.

    For an empty cell with center ``c`` and the elites with the nearest measures, the weights ``w``
    with sum 1 bring ``sum_i w_i m_i`` as near to ``c`` as a small ridge allows. The solution is
    ``sum_i w_i x_i`` and a little noise. If measures were linear in the solution, it would be in
    the cell. The number of elites is log-uniform between 2 and 32. A target is the empty cell
    nearest to a random elite, so that combinations do not extrapolate far. While the archive is
    empty, ``x0`` replaces the elites.

    Moves like these help where measures change smoothly with the solution, as with a generator of
    images.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        iso_sigma: Standard deviation of the noise; by default 4% of ``sigma0``.
        batch_size: Number of solutions per iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> moves = gloam.emitters.AimedMoves(domain.x0, sigma0=0.5, batch_size=36)
        >>> variation = gloam.emitters.Variation(domain.x0, sigma0=0.5, batch_size=36)
        >>> mixture = gloam.emitters.Mixture([moves, variation])
        >>> mixture.num_solutions
        72
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    iso_sigma: float | Float[Array, " sol"]
    batch_size: int = eqx.field(static=True)
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        iso_sigma: float | ArrayLike | None = None,
        batch_size: int = 180,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0, self.iso_sigma = checked_steps(sigma0, iso_sigma, self.x0.size, self.bounds)
        self.batch_size = checks.count("batch_size", batch_size)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "aimed_moves"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Always empty: the elites are those near to the targets."""
        return ()

    @property
    def targets_to_share(self) -> TargetsWanted:
        """Empty cells near to elites, and the elites near to them."""
        return TargetsWanted(min(_NUM_TARGETS, self.batch_size), _MOST, near_elites=True)

    def ask(
        self,
        state: None,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Combine elites that are near to empty cells."""
        assert targets is not None
        key_targets = jax.random.fold_in(key, _TARGETS)
        drawn = targets(**self.targets_to_share._asdict(), key=key_targets)
        # All parts share the targets, and each begins at another one.
        sizes_key = jax.random.fold_in(key, _SIZES)
        chance = uniforms(sizes_key, 1 + self.batch_size)
        number = len(drawn.cells)
        begin = jnp.floor(chance[0] * number).astype(jnp.int32)
        target = (begin + jnp.arange(self.batch_size)) % number
        sizes = jnp.floor(2.0 * (_MOST / 2.0) ** chance[1:])
        # The elites are in the order of their distances.
        most = drawn.are_elites.shape[1]
        is_near = drawn.are_elites[target] & (jnp.arange(most) < sizes[:, None])
        offsets = drawn.measures[target] - drawn.centers[target, None]
        weights = jax.vmap(_weights)(offsets @ jnp.swapaxes(offsets, 1, 2), is_near)
        near = drawn.solutions[target]
        first, second = near[:, 0], near[:, min(1, most - 1)]
        near = self.completed(near, self.completed(first, second)[:, None])
        solutions = (weights[:, None] @ near)[:, 0]
        solutions = self.varied(solutions, normals(key, solutions.shape), self.iso_sigma)
        if self.bounds is not None and self.bounds.discrete is not None:
            # Categories are those of two random ones of these elites.
            ranks = uniforms(jax.random.fold_in(key, _PAIRS), 2 * len(near)).reshape(2, -1)
            ranks = jnp.floor(ranks * jnp.maximum(jnp.sum(is_near, axis=1), 1)).astype(jnp.int32)
            first, second = (near[jnp.arange(len(near)), rank] for rank in ranks)
            solutions = self.with_categories(solutions, first, second, key=key)
        return Proposal(self.inside(solutions, key=key), None)


def _weights(
    products: Float[Array, "near near"], is_near: Bool[Array, " near"]
) -> Float[Array, " near"]:
    """Return weights with sum 1 with which the offsets from the target nearly cancel.

    They are proportional to the solution of ``(P + r I) w = 1``, where ``P`` holds the inner
    products of the offsets and ``r`` is the ridge. Without elites, the first has all the weight.
    """
    ones = is_near.astype(jnp.float32)
    scale = jnp.sum(ones * jnp.diagonal(products)) / jnp.maximum(jnp.sum(ones), 1.0)
    products = ones[:, None] * products * ones / jnp.where(scale > 0, scale, 1.0)

    # Conjugate gradients with a fixed number of steps: those of SciPy in JAX test for convergence,
    # for which a GPU waits in every step. Later steps hardly change where the solution lands.
    def improved(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights, rest, direction = carry
        product = products @ direction + _RIDGE * direction
        squared, curvature = jnp.sum(jnp.square(rest)), jnp.sum(direction * product)
        length = squared / jnp.where(curvature > 0, curvature, 1.0)
        new = rest - length * product
        ratio = jnp.sum(jnp.square(new)) / jnp.where(squared > 0, squared, 1.0)
        return weights + length * direction, new, new + ratio * direction

    first = jnp.zeros_like(ones), ones, ones
    weights, *_ = jax.lax.fori_loop(0, _STEPS, improved, first)
    total = jnp.sum(weights)
    nearest = jnp.zeros_like(weights).at[0].set(1.0)
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), nearest)
