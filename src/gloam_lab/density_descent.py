"""Density Descent Search, and its discount: a kernel density of the measures seen."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import uniforms
from gloam._tools.registry import register
from gloam.algorithms.algorithm import Algorithm, register_algorithm
from gloam.archives import Archive
from gloam.discounts.discount import Discount, untrained
from gloam.emitters import BasicRestart, CmaEmitters, RestartRule, Strategy
from gloam.emitters.emitter import Outside
from gloam.records import Batch, Fit, Scored

_LARGEST_LOG = 80.0  # of a density; the largest float32 is exp(88.7)
_FARTHEST = 1e15  # bandwidths from the center: squares of such numbers, and their sums, are finite


class BufferPolicy(eqx.Module):
    """Decides which measures a full buffer keeps."""

    @abstractmethod
    def slots(
        self, size: int, seen: Int[Array, ""], rank: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> Int[Array, " batch"]:
        """Return a slot for each new row, ``size`` or more to leave it out.

        Args:
            size: Number of slots.
            seen: Number of rows seen before this batch.
            rank: Number of the row among the valid rows of this batch, from 0.
            key: Random key.
        """


@register
class KeepLast(BufferPolicy):
    """Keeps the last ``size`` measures, in a ring buffer."""

    def slots(
        self, size: int, seen: Int[Array, ""], rank: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> Int[Array, " batch"]:
        """Return slots in turn; of a batch longer than the buffer only the end is kept."""
        return jnp.where(rank > jnp.max(rank) - size, (seen + rank) % size, size)


@register
class Reservoir(BufferPolicy):
    """Keeps a uniform sample of all measures seen (algorithm R), as DDS in pyribs does."""

    def slots(
        self, size: int, seen: Int[Array, ""], rank: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> Int[Array, " batch"]:
        """Fill the buffer; then row number t enters a random slot with probability size / t."""
        number = seen + rank
        # Uniform in [0, number]; a draw below size is the slot to replace.
        share = uniforms(key, rank.shape[0])
        draw = jnp.floor(share * (number + 1).astype(jnp.float32)).astype(jnp.int32)
        return jnp.where(number < size, number, draw)


class DensityState(eqx.Module):
    """The buffer of measures, and the number of rows seen."""

    buffer: Float[Array, "size meas"]
    seen: Int[Array, ""]


@register
class KernelDensity(Discount):
    """Gaussian kernel density over a buffer of measures; solutions in low density rank first.

    The density is ``mean_i N(m; b_i, h^2 I)``, zero while the buffer is empty. Its scale matters: a
    ranking whose values differ by less than 1e-12 counts as flat, and then the emitter restarts. In
    ten or more measures, with the paper's bandwidths, every density is that small, and emitters
    restart from random elites in every iteration, as in the paper's DDS (research/study.md).
    Densities above ``e^80``, which small bandwidths in many measures give, are reported as
    ``e^80 (1 + log density - 80)``, which is finite and keeps the order.

    Args:
        bandwidth: Standard deviation ``h`` of the Gaussian kernel, in units of the measures (of
            unit vectors in a cosine archive).
        buffer_size: Number of measures in the buffer.
        policy: Decides which measures are kept; `gloam_lab.Reservoir` by default.
    """

    bandwidth: float
    buffer_size: int = eqx.field(static=True)
    policy: BufferPolicy

    def __init__(
        self,
        *,
        bandwidth: float,
        buffer_size: int = 10_000,
        policy: BufferPolicy | None = None,
    ):
        self.bandwidth = checks.number("bandwidth", bandwidth, above=0.0)
        self.buffer_size = checks.count("buffer_size", buffer_size)
        self.policy = Reservoir() if policy is None else policy
        checks.instance("policy", self.policy, BufferPolicy, "Use Reservoir() or KeepLast().")

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> DensityState:
        """Return an empty buffer."""
        buffer = jnp.zeros((self.buffer_size, centers.shape[1]), jnp.float32)
        return DensityState(buffer, jnp.zeros((), jnp.int32))

    def density(self, state: DensityState, points: Float[Array, "n meas"]) -> Float[Array, " n"]:
        """Return the kernel density at measures."""
        log_density = self._log_density(state, points)
        # Beyond the range of float32, continue with the logarithm, which keeps the order.
        excess = jnp.maximum(log_density - _LARGEST_LOG, 0.0)
        return jnp.exp(jnp.minimum(log_density, _LARGEST_LOG)) * (1.0 + excess)

    def _log_density(
        self, state: DensityState, points: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """Return the logarithm of the density; minus infinity while the buffer is empty."""
        is_filled = jnp.arange(self.buffer_size, dtype=jnp.int32) < state.seen
        center = _center(state.buffer, is_filled)
        # Centered and scaled before anything is squared: differences of large squares lose digits.
        points = _bounded((points - center) / self.bandwidth)
        buffer = _bounded((state.buffer - center) / self.bandwidth)
        squared = (
            jnp.sum(jnp.square(points), axis=1)[:, None]
            + jnp.sum(jnp.square(buffer), axis=1)
            - 2 * points @ buffer.T
        )
        squared = jnp.where(is_filled, jnp.maximum(squared, 0.0), jnp.inf)
        # Relative to the kernel of the nearest measures, so that the sum cannot underflow.
        nearest = jnp.where(state.seen > 0, jnp.min(squared, axis=1), 0.0)
        total = jnp.sum(jnp.exp(-0.5 * (squared - nearest[:, None])), axis=1)
        number = jnp.clip(state.seen, 1, self.buffer_size).astype(jnp.float32)
        log_peak = -points.shape[1] * (0.5 * math.log(2 * math.pi) + jnp.log(self.bandwidth))
        return log_peak - 0.5 * nearest + jnp.log(total / number)

    def at_cells(
        self, state: DensityState, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """Return NaN: a density is not on the scale of objectives."""
        return jnp.full(cells.shape, jnp.nan, jnp.float32)

    def score(self, state: DensityState, batch: Batch) -> Scored:
        """Return the density at each solution's measures, and its negative as improvement."""
        density = self.density(state, batch.measures)
        return Scored(density, -density)

    def train(
        self,
        state: DensityState,
        batch: Batch,
        scored: Scored,
        centers: Float[Array, "n meas"],
        is_real: Bool[Array, " n"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[DensityState, Fit]:
        """Add the measures of the batch to the buffer."""
        size = batch.valid.shape[0]
        rank = jnp.cumsum(batch.valid, dtype=jnp.int32) - 1
        slot = self.policy.slots(self.buffer_size, state.seen, rank, key=key)
        slot = jnp.where(batch.valid, slot, self.buffer_size)
        # Two rows may draw one slot, and the order of a scatter is undefined: the last row wins.
        row = jnp.arange(size, dtype=jnp.int32)
        last = jnp.full((self.buffer_size,), -1, jnp.int32).at[slot].max(row, mode="drop")
        buffer = jnp.where((last >= 0)[:, None], batch.measures[last], state.buffer)
        seen = state.seen + jnp.sum(batch.valid, dtype=jnp.int32)
        return DensityState(buffer, seen), untrained(batch)


@register_algorithm
class DDS(Algorithm):
    """Density Descent Search (Lee et al., 2024), which ignores the objective while it searches.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting solution of every CMA-ES instance, a `gloam.Space`, or a pytree of
            arrays.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts: one
            number, or one for each variable. With bounds on both sides it is a share of their
            width, by default a fifth.
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` or ``"reflect"``.
        restart: Decides when an instance restarts from a random elite;
            `gloam.emitters.BasicRestart` by default.
        strategy: Evolution strategy of the instances, as for `gloam.DMS`.
        bandwidth: Standard deviation of the Gaussian kernel, in units of the measures (of unit
            vectors in a cosine archive).
        buffer_size: Number of measures in the buffer of the density.

    Example:
        >>> import gloam, gloam_lab, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam_lab.DDS(archive, np.zeros(4), 0.2, bandwidth=0.1).discount.buffer_size
        10000
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
        bandwidth: float,
        buffer_size: int = 10_000,
    ):
        emitter = CmaEmitters(
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            restart=BasicRestart() if restart is None else restart,
            bounds=bounds,
            outside=outside,
            strategy=strategy,
        )
        density = KernelDensity(bandwidth=bandwidth, buffer_size=buffer_size)
        super().__init__(emitter, archive, density, "DDS")


def _center(
    buffer: Float[Array, "size meas"], is_filled: Bool[Array, " size"]
) -> Float[Array, " meas"]:
    """Return the mean of the filled rows, from differences to the first, at any offset."""
    number = jnp.maximum(jnp.sum(is_filled, dtype=jnp.float32), 1.0)
    # Divided before they are added up, so that the sum is finite.
    offsets = jnp.where(is_filled[:, None], (buffer - buffer[0]) / number, 0.0)
    center = buffer[0] + jnp.sum(offsets, axis=0)
    return jnp.where(jnp.isfinite(center), center, 0.0)


def _bounded(rows: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
    return jnp.clip(rows, -_FARTHEST, _FARTHEST)
