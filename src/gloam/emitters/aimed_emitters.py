"""Aimed CMA-ES: instances that each search for one empty cell."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.emitters.cma_emitters import CmaEmitters, CmaEmittersState, Learned, where_instances
from gloam.emitters.cma_es import Strategy
from gloam.emitters.emitter import (
    Bounds,
    ElitesWanted,
    Emitter,
    Outside,
    rows_of_part,
    with_rows_of_part,
)
from gloam.emitters.rules import BasicRestart
from gloam.emitters.sep_cma_es import SepCMAES
from gloam.records import DrawsTargets, Feedback, Proposal

# An instance gives its target up if the squared distance has not fallen by this share ...
_PROGRESS = 0.01
# ... for this many iterations, at work or at rest.
_PATIENCE = 25
# Number of counts of how often cells were targets. Beyond, several cells share a count.
_COUNTS = 2**14
# Squared distance before the first one: finite, as all numbers of a state are.
_FAR = float(jnp.finfo(jnp.float32).max)
# Folded into the key for targets; nothing else of an emitter is drawn with it.
_TARGETS = 2**32 - 3


class AimedState(eqx.Module):
    """CMA-ES instances, and the cell that each of them aims at."""

    instances: CmaEmittersState
    cells: Int[Array, " emitters"]
    """The targets."""
    is_aimed: Bool[Array, " emitters"]
    """False for instances without an empty target, which rank by the improvement."""
    is_waiting: Bool[Array, " emitters"]
    """True for instances that begin again at the next target."""
    smallest: Float[Array, " emitters"]
    """Smallest squared distance when progress was last counted."""
    idle: Int[Array, " emitters"]
    """Number of iterations without progress."""
    tried: Int[Array, " counts"]
    """How often each cell was a target. Cells of a large archive share these counts."""
    reached: Int[Array, ""]
    """Number of targets that were filled while an instance aimed at them."""


class _Begun(NamedTuple):
    """Instances that begin at a new target in a proposal."""

    begins: Bool[Array, " emitters"]
    cells: Int[Array, " emitters"]
    is_aimed: Bool[Array, " emitters"]
    starts: Float[Array, "emitters sol"]


@register(assembled=True)
class AimedCmaEmitters(Emitter):
    """CMA-ES instances that each aim at an empty cell.

    The target of an instance is one of the empty cells that were targets least often. It starts at
    the elite whose measures are nearest to the center of that cell, and ranks its solutions by
    their distance to it. It takes another target when its own is filled, by whichever solution, or
    when the squared distance has not fallen by 1% for 25 iterations. Iterations at rest count, too:
    meanwhile, other elites may have come nearer. While no cell is empty, instances start at random
    elites and rank by the improvement.

    Args:
        x0: ``(sol,)`` solution from which instances start while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.
        strategy: Evolution strategy; by default `gloam.emitters.SepCMAES`, whose variances adapt in
            few iterations, since an instance has a target for tens of iterations only.

    Example:
        >>> import gloam, numpy as np
        >>> aimed = gloam.emitters.AimedCmaEmitters(np.zeros(10), sigma0=0.5, num_emitters=2)
        >>> aimed.num_solutions
        72
    """

    instances: CmaEmitters

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
        strategy: Strategy | None = None,
    ):
        self.instances = CmaEmitters(
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            restart=BasicRestart(),
            bounds=bounds,
            outside=outside,
            strategy=SepCMAES() if strategy is None else strategy,
        )

    @property
    def x0(self) -> Float[Array, " sol"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Starting solution."""
        return self.instances.x0

    @property
    def solution_bounds(self) -> Bounds | None:
        """Bounds of the solutions."""
        return self.instances.bounds

    @property
    def num_emitters(self) -> int:
        """Number of CMA-ES instances."""
        return self.instances.num_emitters

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""
        return self.instances.num_solutions

    @property
    def instance_size(self) -> int:
        """Number of solutions of a CMA-ES instance."""
        return self.instances.batch_size

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "aimed"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Always empty: the elites are those near to the targets."""
        return ()

    @property
    def num_elites_to_adapt(self) -> int:
        """Always 0: instances begin again at targets of the next `ask`."""
        return 0

    def init(self, x0: Float[Array, " sol"] | None = None) -> AimedState:
        """Return a state in which all instances wait for a target."""
        number = self.num_emitters
        return AimedState(
            instances=self.instances.init(x0),
            cells=jnp.zeros(number, jnp.int32),
            is_aimed=jnp.zeros(number, bool),
            is_waiting=jnp.ones(number, bool),
            smallest=jnp.full(number, _FAR, jnp.float32),
            idle=jnp.zeros(number, jnp.int32),
            tried=jnp.zeros(_COUNTS, jnp.int32),
            reached=jnp.zeros((), jnp.int32),
        )

    def ask(
        self,
        state: AimedState,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Sample solutions. Instances that wait begin at the new targets."""
        assert targets is not None
        begins = state.is_waiting

        def drawn() -> _Begun:
            key_targets = jax.random.fold_in(key, _TARGETS)
            new = targets(self.num_emitters, tried=state.tried, key=key_targets)
            cells = jnp.where(begins, new.cells, state.cells)
            is_aimed = jnp.where(begins, new.are_empty, state.is_aimed)
            return _Begun(begins, cells, is_aimed, new.solutions[:, 0])

        no_starts = jnp.zeros((self.num_emitters, *self.x0.shape), jnp.float32)
        none = _Begun(begins, state.cells, state.is_aimed, no_starts)
        begun = jax.lax.cond(jnp.any(begins), drawn, lambda: none)
        instances = self._begun(state.instances, begun)
        proposal = self.instances.ask(instances, elites, key=key)
        rows = jnp.repeat(begun.cells, self.instance_size)
        return dataclasses.replace(proposal, aux=(proposal.aux, begun), targets=rows)

    def adapt(
        self,
        state: AimedState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> AimedState:
        """Update the Gaussians by the distances to their targets."""
        distances, cma = feedback.distances, self.instances
        assert distances is not None
        aux, begun = proposal.aux
        aims = jnp.repeat(begun.is_aimed, self.instance_size)
        values = jnp.where(aims, -distances.squared, feedback.improvements)
        # Solutions too far from all items rank by the distance to their target, too.
        is_ranked = jnp.where(aims, distances.are_known, feedback.valid)
        ranking = cma.ranking(dataclasses.replace(feedback, improvements=values, valid=is_ranked))
        before = self._begun(state.instances, begun)
        sampled = dataclasses.replace(proposal, aux=aux)
        resting = cma.resting(feedback)
        gaussians, choices = cma.updated(before, sampled, ranking, resting, feedback.iteration)

        nearest = jnp.where(is_ranked & aims, distances.squared, jnp.inf)
        nearest = jnp.min(cma.by_instance(nearest), axis=1)
        smallest = jnp.where(begun.begins, _FAR, state.smallest)
        has_progress = nearest < (1.0 - _PROGRESS) * smallest
        has_progress |= ~begun.is_aimed & (ranking.num_accepted > 0)
        idle = jnp.where(has_progress | begun.begins, 0, state.idle + 1)
        is_reached = begun.is_aimed & cma.by_instance(distances.are_filled)[:, 0]
        is_degenerate = jax.vmap(cma.strategy.degenerate)(gaussians)
        stops = is_reached | (idle >= _PATIENCE) | is_degenerate | ranking.is_flat

        # Instances that were not used stay as they are.
        old = state.instances
        resting = jnp.zeros(self.num_emitters, bool) if resting is None else resting
        gaussians, choices = where_instances(
            resting, (old.gaussians, old.choices), (gaussians, choices)
        )
        restarts, reached = (
            jnp.sum(which & ~resting, dtype=jnp.int32) for which in (stops, is_reached)
        )
        has_begun = jnp.where(begun.begins & ~resting, 1, 0)
        # After a long rest an instance begins anew, because other elites have come nearer.
        rested = state.idle + 1
        is_stale = state.is_waiting | (rested >= _PATIENCE)
        cells, is_aimed, is_waiting, smallest, idle = where_instances(
            resting,
            (state.cells, state.is_aimed, is_stale, state.smallest, rested),
            (begun.cells, begun.is_aimed, stops, jnp.where(has_progress, nearest, smallest), idle),
        )
        return AimedState(
            CmaEmittersState(gaussians, old.rule, old.restarts + restarts, choices),
            cells=cells,
            is_aimed=is_aimed,
            is_waiting=is_waiting,
            smallest=smallest,
            idle=idle,
            tried=state.tried.at[begun.cells % _COUNTS].add(has_begun),
            reached=state.reached + reached,
        )

    def _begun(self, instances: CmaEmittersState, begun: _Begun) -> CmaEmittersState:
        """Return the instances after some of them began at a new target."""
        old: Learned = instances.gaussians, instances.choices
        gaussians, choices = where_instances(
            begun.begins, self.instances.started(begun.starts), old
        )
        return CmaEmittersState(gaussians, instances.rule, instances.restarts, choices)

    def metrics(self, state: AimedState) -> dict[str, Array]:
        """Return the number of restarts, and of targets that were filled meanwhile."""
        return {"restarts": state.instances.restarts, "reached": state.reached}

    @property
    def num_parts(self) -> int:
        """Number of CMA-ES instances."""
        return self.num_emitters

    def divides_into(self, num_parts: int) -> bool:
        """Return whether every part has the same number of CMA-ES instances."""
        return self.instances.divides_into(num_parts)

    def part(self, num_parts: int) -> "AimedCmaEmitters":
        """Return the emitter with some of the CMA-ES instances."""
        return eqx.tree_at(lambda e: e.instances, self, self.instances.part(num_parts))

    def part_state(self, state: AimedState, index: Int[Array, ""], num_parts: int) -> AimedState:
        """Return the state of some instances, with the counts of all."""
        instances = dataclasses.replace(state, tried=None)
        part = rows_of_part(instances, index, num_parts)
        return dataclasses.replace(part, tried=state.tried)

    def with_part_state(
        self, state: AimedState, index: Int[Array, ""], num_parts: int, part_state: AimedState
    ) -> AimedState:
        """Return the state with some instances replaced."""
        old, new = (dataclasses.replace(each, tried=None) for each in (state, part_state))
        whole = with_rows_of_part(old, index, new)
        return dataclasses.replace(whole, tried=part_state.tried)
