"""Mixtures of emitters, with fixed shares of the batch or with shares that adapt."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import uniforms
from gloam._tools.registry import register
from gloam.emitters.cma_emitters import CmaEmitters
from gloam.emitters.emitter import Bounds, Branching, Divisible, EliteEmitter, ElitesWanted, Emitter
from gloam.emitters.recombination import Swaps
from gloam.records import Aims, Feedback, Proposal

# Weight of what new cells bring, because other solutions start from them.
_CELL = 10.0
# Smallest share of refinement and of the other emitters, so that both are always tried.
_LEAST = 0.05


class MixtureState(eqx.Module):
    """States of the emitters, and their success counts since the start of the search."""

    emitters: tuple[Any, ...]
    accepted: Int[Array, " emitters"]
    """Number of solutions that beat the elite of their cell."""
    filled: Int[Array, " emitters"]
    """Number of solutions that filled an empty cell."""


@register
class Mixture(Emitter):
    """Several emitters that propose a batch together.

    All of them feed the same archive and the same discount, and each adapts to its own solutions.

    Args:
        emitters: The emitters. They search solutions of one size and start at the ``x0`` of the
            first one.

    Example:
        >>> import numpy as np
        >>> from gloam.emitters import CmaEmitters, Variation
        >>> x0 = np.zeros(10)
        >>> half = CmaEmitters(x0, sigma0=0.5, num_emitters=2, batch_size=20)
        >>> mixture = Mixture([half, Variation(x0, sigma0=0.02, line_sigma=0.5, batch_size=40)])
        >>> mixture.num_solutions
        80
    """

    emitters: tuple[Emitter, ...]

    def __init__(self, emitters: Sequence[Emitter]):
        fix = "Give a list of emitters."
        is_list = isinstance(emitters, (list, tuple)) and len(emitters) > 0
        checks.expect(is_list, "emitters", "a list of emitters", emitters, fix)
        for emitter in emitters:
            checks.instance("emitters", emitter, Emitter, fix)
            is_branching = isinstance(emitter, Branching)
            expected, got = "emitters that ask without gradients", type(emitter).__name__
            checks.expect(not is_branching, "emitters", expected, got, "Use it alone.")
        sizes = [emitter.x0.shape[0] for emitter in emitters]
        expected = "emitters for solutions of one size"
        checks.expect(len(set(sizes)) == 1, "emitters", expected, f"sizes {sizes}")
        forms = [emitter.form for emitter in emitters]
        expected = "emitters for one space"
        checks.expect(all(one == forms[0] for one in forms), "emitters", expected, "several")
        self.emitters = tuple(emitters)

    @property
    def solution_bounds(self) -> Bounds | None:
        """Bounds of the first emitter."""
        return self.emitters[0].solution_bounds

    @property
    def x0(self) -> Float[Array, " sol"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Starting solution."""
        return self.emitters[0].x0

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration by all emitters."""
        return sum(emitter.num_solutions for emitter in self.emitters)

    @property
    def gradient_rows(self) -> Int[np.ndarray, " n"]:
        """Indices of the solutions of all emitters that need gradients."""
        sizes = np.cumsum([0, *(emitter.num_solutions for emitter in self.emitters)])
        pairs = zip(sizes, self.emitters, strict=False)
        return np.concatenate([start + emitter.gradient_rows for start, emitter in pairs])

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Draws of elites for all emitters."""
        return tuple(draw for emitter in self.emitters for draw in emitter.elites_to_ask)

    @property
    def num_elites_to_adapt(self) -> int:
        """Number of random elites for all emitters."""
        return sum(emitter.num_elites_to_adapt for emitter in self.emitters)

    def init(self, x0: Float[Array, " sol"] | None = None) -> MixtureState:
        """Return a state with all emitters at ``x0``, or at the first emitter's own."""
        start = self.x0 if x0 is None else x0
        zeros = jnp.zeros(len(self.emitters), jnp.int32)
        return MixtureState(tuple(emitter.init(start) for emitter in self.emitters), zeros, zeros)

    def ask(
        self, state: MixtureState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Concatenate the proposals of all emitters."""
        shares = self._split(elites, _num_elites)
        keys = jax.random.split(key, len(self.emitters))
        proposals = [
            emitter.ask(own, share, key=key)
            for emitter, own, share, key in zip(
                self.emitters, state.emitters, shares, keys, strict=True
            )
        ]
        solutions = jnp.concatenate([proposal.solutions for proposal in proposals])
        return Proposal(
            solutions, tuple(proposal.aux for proposal in proposals), _all_aims(proposals)
        )

    def adapt(
        self,
        state: MixtureState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> MixtureState:
        """Let every emitter adapt to its own solutions."""
        shares = self._split(elites, lambda emitter: emitter.num_elites_to_adapt)
        adapted, accepted, filled, start = [], [], [], 0
        for place, (emitter, own) in enumerate(zip(self.emitters, state.emitters, strict=True)):
            rows = slice(start, start + emitter.num_solutions)
            start = rows.stop
            mine = jax.tree.map(lambda leaf, rows=rows: leaf[rows] if leaf.ndim else leaf, feedback)
            asked = Proposal(proposal.solutions[rows], proposal.aux[place])
            adapted.append(emitter.adapt(own, asked, mine, shares[place]))
            accepted.append(jnp.sum(mine.accepted, dtype=jnp.int32))
            filled.append(jnp.sum(mine.filled, dtype=jnp.int32))
        accepted, filled = state.accepted + jnp.stack(accepted), state.filled + jnp.stack(filled)
        return MixtureState(tuple(adapted), accepted, filled)

    def started_at(self, state: MixtureState, elites: Float[Array, "n sol"]) -> MixtureState:
        """Let every emitter begin at its own elites."""
        shares = self._split(elites, lambda emitter: emitter.num_elites_to_adapt)
        triples = zip(self.emitters, state.emitters, shares, strict=True)
        started = tuple(emitter.started_at(own, share) for emitter, own, share in triples)
        return dataclasses.replace(state, emitters=started)

    def metrics(self, state: MixtureState) -> dict[str, Array]:
        """Return the restarts of all emitters, and the metrics of each under its label."""
        found: dict[str, Array] = {}
        restarts = []
        for place, (name, emitter) in enumerate(zip(self.labels, self.emitters, strict=True)):
            own = emitter.metrics(state.emitters[place])
            restarts.append(own["restarts"])
            own |= {"accepted": state.accepted[place], "filled": state.filled[place]}
            found |= {f"{name}_{metric}": value for metric, value in own.items()}
        return {"restarts": jnp.sum(jnp.stack(restarts), dtype=jnp.int32)} | found

    @property
    def labels(self) -> list[str]:
        """Labels of the emitters, numbered if several have the same."""
        labels = [emitter.label for emitter in self.emitters]
        return [
            f"{label}_{labels[:place].count(label) + 1}" if labels.count(label) > 1 else label
            for place, label in enumerate(labels)
        ]

    @property
    def num_parts(self) -> int:
        """Largest number of equal parts into which every emitter can be divided."""
        numbers = {emitter.num_parts for emitter in self.emitters if isinstance(emitter, Divisible)}
        return max((number for number in numbers if self.divides_into(number)), default=1)

    def divides_into(self, num_parts: int) -> bool:
        """Return true if every emitter can be divided evenly."""
        return num_parts == 1 or all(
            isinstance(emitter, Divisible) and emitter.divides_into(num_parts)
            for emitter in self.emitters
        )

    def part(self, num_parts: int) -> "Mixture":
        """Return a mixture of one part of every emitter."""
        if num_parts == 1:
            return self
        parts = tuple(emitter.part(num_parts) for emitter in self._divisible)
        return dataclasses.replace(self, emitters=parts)

    def part_state(self, state: MixtureState, index: Int[Array, ""]) -> MixtureState:
        """Return the states of one part of every emitter, with the counts of all parts."""
        if self.num_parts == 1:
            return state
        pairs = zip(self._divisible, state.emitters, strict=True)
        own = tuple(emitter.part_state(all_, index) for emitter, all_ in pairs)
        return dataclasses.replace(state, emitters=own)

    def with_part_state(
        self, state: MixtureState, index: Int[Array, ""], part_state: MixtureState
    ) -> MixtureState:
        """Return the state with one part of every emitter replaced."""
        if self.num_parts == 1:
            return part_state
        triples = zip(self._divisible, state.emitters, part_state.emitters, strict=True)
        whole = tuple(emitter.with_part_state(all_, index, one) for emitter, all_, one in triples)
        return dataclasses.replace(part_state, emitters=whole)

    @property
    def _divisible(self) -> list[Divisible]:
        return [emitter for emitter in self.emitters if isinstance(emitter, Divisible)]

    def _split(self, rows: Array, size: Callable[[Emitter], int]) -> list[Array]:
        """Return the rows of each emitter."""
        shares, start = [], 0
        for emitter in self.emitters:
            shares.append(rows[start : start + size(emitter)])
            start += size(emitter)
        return shares


class Gains(eqx.Module):
    """What solutions brought recently: those of emitters that explore first, then refinement."""

    tried: Float[Array, "2"]
    """Number of solutions."""
    gained: Float[Array, "2"]
    """By how much they raised the QD score. New cells count several times for emitters that
    explore, and not for refinement: it fills cells next to those that others have found."""

    @property
    def refinement_share(self) -> Float[Array, ""]:
        """Share of refinement in the next batch, by the squared gains per solution."""
        explored, refined = self.gained / jnp.maximum(self.tried, 1e-6)
        ratio = explored / jnp.where(refined > 0, refined, 1.0)
        share = jnp.where(refined > 0, 1.0 / (1.0 + jnp.square(ratio)), 0.0)
        return jnp.clip(share, _LEAST, 1.0 - _LEAST)


class AdaptiveMixtureState(MixtureState):
    """States of the emitters, and what they brought recently."""

    recent: Gains


@register
class AdaptiveMixture(Mixture):
    """A mixture that refines elites when there is nothing else to find.

    The share of refinement follows what it brings to the QD score, compared with the other
    emitters, whose new cells count ten times. It is small while they fill cells. When they no
    longer do, CMA-ES instances rest in most iterations, and emitters that vary elites leave most of
    their solutions to refinement.

    Args:
        emitters: The emitters, as of a `Mixture`. The last one is `gloam.emitters.Swaps`, which
            refines. Its ``batch_size`` is the number of solutions of all
            `gloam.emitters.CmaEmitters` and emitters that vary elites, which come first.
        window: Number of solutions over which gains are counted; 20 batches by default.

    Example:
        >>> import numpy as np
        >>> from gloam.emitters import CmaEmitters, Recombination, Swaps
        >>> x0 = np.zeros(10)
        >>> explore = [CmaEmitters(x0, 0.5), Recombination(x0, 0.5)]
        >>> mixture = AdaptiveMixture([*explore, Swaps(x0, 0.5, batch_size=540)])
        >>> mixture.num_solutions, round(mixture.init().recent.refinement_share.item(), 2)
        (540, 0.05)
    """

    window: float

    def __init__(self, emitters: Sequence[Emitter], *, window: float | None = None):
        super().__init__(emitters)
        checks.instance("the last of emitters", self.emitters[-1], Swaps)
        replaced = self.emitters[: self._num_replaced]
        varies = any(isinstance(emitter, EliteEmitter) for emitter in replaced)
        expected = "one that varies elites before the last one, such as Recombination"
        checks.expect(varies, "emitters", expected, [type(one).__name__ for one in self.emitters])
        number = sum(emitter.num_solutions for emitter in replaced)
        expected = f"{number} solutions of the last one, as those have that it may replace"
        refined = self.emitters[-1].num_solutions
        checks.expect(refined == number, "emitters", expected, refined)
        window = 20.0 * self.num_solutions if window is None else window
        self.window = checks.number("window", window, above=1.0)

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration by all emitters."""
        return super().num_solutions - self.emitters[-1].num_solutions

    def init(self, x0: Float[Array, " sol"] | None = None) -> AdaptiveMixtureState:
        """Return a state with all emitters at ``x0``, before anything was gained."""
        first = super().init(x0)
        recent = Gains(jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.float32))
        return AdaptiveMixtureState(first.emitters, first.accepted, first.filled, recent)

    def ask(self, state: Any, elites: Float[Array, "n sol"], *, key: PRNGKeyArray) -> Proposal:
        """Let refinement replace some of the solutions of the other emitters."""
        *shares, parents = self._split(elites, _num_elites)
        *keys, key_refine = jax.random.split(key, len(self.emitters))
        pairs = zip(self.emitters[:-1], state.emitters[:-1], shares, keys, strict=True)
        explored = [emitter.ask(own, share, key=key) for emitter, own, share, key in pairs]
        solutions = jnp.concatenate([proposal.solutions for proposal in explored])
        solutions, is_refined = self._refined(state.recent, solutions, parents, key=key_refine)
        own = tuple((proposal.solutions, proposal.aux) for proposal in explored)
        return Proposal(solutions, (own, is_refined), _all_aims(explored))

    def _refined(
        self,
        recent: Gains,
        solutions: Float[Array, "batch sol"],
        parents: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "batch sol"], Bool[Array, " batch"]]:
        """Return the solutions with some replaced by refinement, and which of them are."""
        share, swaps = recent.refinement_share, self.emitters[-1]
        number = swaps.num_solutions
        key_rows, key_refine = jax.random.split(key)

        def some(solutions: Array) -> tuple[Array, Array]:
            is_refined = self._drawn(share, key=key_rows)
            refined = swaps.ask(None, parents, key=key_refine).solutions
            chosen = jnp.where(is_refined[:number, None], refined, solutions[:number])
            return jnp.concatenate([chosen, solutions[number:]]), is_refined

        def few(solutions: Array) -> tuple[Array, Array]:
            rows = self._rows_to_try
            refined = swaps.ask(None, parents[: 2 * len(rows)], key=key_refine).solutions
            is_refined = jnp.zeros(solutions.shape[0], bool).at[rows].set(True)
            return solutions.at[rows].set(refined), is_refined

        # While the others fill cells, which is most of a search, only a few solutions refine, and
        # the random numbers for all of them would take a fifth of an iteration on a CPU.
        return jax.lax.cond(share > _LEAST, some, few, solutions)

    def adapt(
        self,
        state: Any,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> AdaptiveMixtureState:
        """Let every emitter adapt to its own solutions, and count what both kinds bring."""
        own, is_refined = proposal.aux
        shares = self._split(elites, lambda emitter: emitter.num_elites_to_adapt)
        accepted, filled = feedback.accepted, feedback.filled
        explored = dataclasses.replace(
            feedback, accepted=accepted & ~is_refined, filled=filled & ~is_refined
        )
        adapted, starts = [], self._starts
        for place, emitter in enumerate(self.emitters[:-1]):
            rows = slice(starts[place], starts[place + 1])
            mine = jax.tree.map(lambda leaf, rows=rows: leaf[rows] if leaf.ndim else leaf, explored)
            arguments = state.emitters[place], Proposal(*own[place]), mine, shares[place]
            if isinstance(emitter, CmaEmitters):
                rests = is_refined[rows].reshape(emitter.num_emitters, -1)[:, 0]
                adapted.append(emitter.adapt(*arguments, rests=rests))
            else:
                adapted.append(emitter.adapt(*arguments))

        def by_emitter(flags: Bool[Array, " batch"]) -> Int[Array, " emitters"]:
            parts = jnp.split(flags & ~is_refined, starts[1:-1])
            numbers = [jnp.sum(part, dtype=jnp.int32) for part in (*parts, flags & is_refined)]
            return jnp.stack(numbers)

        return AdaptiveMixtureState(
            (*adapted, None),
            state.accepted + by_emitter(accepted),
            state.filled + by_emitter(filled),
            self._counted(state.recent, feedback, is_refined),
        )

    def metrics(self, state: Any) -> dict[str, Array]:
        """Return the metrics of a mixture, and the share of refinement in the next batch."""
        share = state.recent.refinement_share
        return super().metrics(state) | {"refinement_share": share}

    def _counted(
        self, recent: Gains, feedback: Feedback, is_refined: Bool[Array, " batch"]
    ) -> Gains:
        """Return the gains after a batch."""
        gains, was_empty = feedback.gains, feedback.was_empty
        assert gains is not None
        assert was_empty is not None
        kept = (1.0 - 1.0 / self.window) ** self.num_solutions
        is_kind = jnp.stack([~is_refined, is_refined])
        refined = jnp.where(was_empty, 0.0, gains)
        explored = jnp.where(feedback.filled, _CELL * gains, refined)
        gained = jnp.sum(jnp.where(is_kind, jnp.stack([explored, refined]), 0.0), axis=1)
        tried = jnp.sum(is_kind, axis=1, dtype=jnp.float32)
        return Gains(kept * recent.tried + tried, kept * recent.gained + gained)

    @property
    def _num_replaced(self) -> int:
        """Number of emitters whose solutions refinement may replace, which come first."""
        can_be = [isinstance(one, (CmaEmitters, EliteEmitter)) for one in self.emitters[:-1]]
        return [*can_be, False].index(False)

    @property
    def _starts(self) -> list[int]:
        """First rows of the emitters, and the number of all rows."""
        sizes = [emitter.num_solutions for emitter in self.emitters[:-1]]
        return np.cumsum([0, *sizes]).tolist()

    @property
    def _rows_to_try(self) -> Int[np.ndarray, " rows"]:
        """Rows that refine while the share is the smallest: some that vary elites."""
        starts, emitters = self._starts, self.emitters[: self._num_replaced]
        varied = [
            np.arange(starts[place], starts[place + 1])
            for place, emitter in enumerate(emitters)
            if isinstance(emitter, EliteEmitter)
        ]
        return np.concatenate(varied)[:: round(1 / _LEAST)]

    def _drawn(self, share: Float[Array, ""], *, key: PRNGKeyArray) -> Bool[Array, " batch"]:
        """Draw the solutions that refine: all of a CMA-ES instance, or none."""
        drawn = uniforms(key, self.num_solutions) < share
        parts = jnp.split(drawn, self._starts[1:-1])
        for place, emitter in enumerate(self.emitters[:-1]):
            if place >= self._num_replaced:
                parts[place] = jnp.zeros_like(parts[place])
            elif isinstance(emitter, CmaEmitters):
                rests = parts[place][: emitter.num_emitters]
                parts[place] = jnp.repeat(rests, emitter.batch_size)
        return jnp.concatenate(parts)


def _num_elites(emitter: Emitter) -> int:
    """Return the number of elites that an emitter asks for."""
    return sum(draw.number for draw in emitter.elites_to_ask)


def _all_aims(proposals: list[Proposal]) -> Aims | None:
    """Return what the solutions of all proposals climb."""
    aims = [proposal.aims for proposal in proposals if proposal.aims is not None]
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *aims) if aims else None
