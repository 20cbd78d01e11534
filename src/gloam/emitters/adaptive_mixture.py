"""A mixture of emitters whose shares of the batch follow what they bring to the QD score."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.devices import runs_on_cpu
from gloam._tools.draws import uniforms
from gloam._tools.registry import register
from gloam.emitters.emitter import Divisible, ElitesWanted, Emitter, TargetsWanted
from gloam.emitters.mixture import Mixture, MixtureState
from gloam.records import Aims, DrawsTargets, Feedback, Proposal

# Smallest share of an emitter by default, so that none is starved.
_LEAST = 0.02
# Number of batches of an emitter's own solutions over which its gain is counted.
_WINDOW = 20.0


class AdaptiveMixtureState(MixtureState):
    """States of the emitters, and what their solutions brought recently."""

    tried: Float[Array, " emitters"]
    """Recent number of solutions of each emitter."""
    gained: Float[Array, " emitters"]
    """By how much they raised the QD score. A new cell counts from the floor of the discount."""
    recent_gain: Float[Array, ""]
    """By how much the last solutions of all emitters raised the QD score."""
    recent_new: Float[Array, ""]
    """The part of it that new cells brought."""
    begin: Float[Array, ""]
    """Where the part that is asked begins in the batch, as a share of it; 0 for the whole batch."""
    length: Float[Array, ""]
    """Length of the part, as a share of the batch."""


@register
class AdaptiveMixture(Mixture):
    """Emitters that share a batch by what they bring to the QD score.

    Every emitter proposes solutions for the whole batch, which is divided into slots of equal size.
    In each iteration a slot goes to one emitter. Every emitter has a smallest share. Beyond these,
    its expected share is proportional to the gain in QD score per solution, which is counted over
    the last solutions of the emitter. This is probability matching (Thierens, "Adaptive strategies
    for operator allocation", 2007).

    Slots go to the emitters in their order. An emitter with three slots lets its first three parts
    work, so that mostly the same CMA-ES instances work from one iteration to the next. The others
    rest.

    Args:
        emitters: The emitters, as of a `Mixture`. The largest ones can fill the batch alone. A
            smaller one, such as `gloam.emitters.GradientAscent`, has at most its own size; smaller
            ones share the first slots.
        least: Smallest share of each emitter; 2% by default. Gains only count what an emitter's own
            solutions bring. An emitter that finds the regions from which others start is worth
            more, and should have more. As this is for new cells, what is above 2% is multiplied by
            their part of the gain of all emitters in the last batches.
        window: Number of its own solutions over which an emitter's gain is counted; by default the
            solutions of 20 batches.

    Example:
        >>> import numpy as np
        >>> from gloam.emitters import CmaEmitters, Recombination, Swaps
        >>> x0 = np.zeros(10)
        >>> size = {"batch_size": 540}
        >>> moves, swaps = Recombination(x0, 0.5, **size), Swaps(x0, 0.5, **size)
        >>> mixture = AdaptiveMixture([CmaEmitters(x0, 0.5, num_emitters=15), moves, swaps])
        >>> mixture.num_solutions, mixture.instance_size
        (540, 36)
    """

    least: Float[np.ndarray, " emitters"]
    window: float
    parts: tuple[Emitter, ...]
    """Each emitter as it is in one slot."""

    def __init__(
        self,
        emitters: Sequence[Emitter],
        *,
        least: Sequence[float] | None = None,
        window: float | None = None,
    ):
        super().__init__(emitters)
        size = self.instance_size
        for emitter in self.emitters:
            expected, fix = "emitters that are not mixtures", "Give the emitters themselves."
            is_mixture = isinstance(emitter, Mixture)
            checks.expect(not is_mixture, "emitters", expected, type(emitter).__name__, fix)
            number = emitter.num_solutions
            expected = f"emitters whose number of solutions is a multiple of {size}"
            checks.expect(number % size == 0, "emitters", expected, number)
            fits = isinstance(emitter, Divisible) and emitter.divides_into(number // size)
            expected, got = f"emitters that divide into parts of {size}", type(emitter).__name__
            checks.expect(fits, "emitters", expected, got)
            expected = "emitters with gradients of all their solutions, or of none"
            number_of_gradients = len(emitter.gradient_rows)
            checks.expect(
                number_of_gradients in (0, number), "emitters", expected, number_of_gradients
            )
        pairs = zip(self._divisible, self.emitters, strict=True)
        self.parts = tuple(kind.part(emitter.num_solutions // size) for kind, emitter in pairs)
        given = np.full(len(self.emitters), _LEAST) if least is None else least
        self.least = checks.finite_array("least", given, ndim=1).astype(np.float32)
        expected = f"{len(self.emitters)} shares from 0 with a sum of less than 1"
        fits = len(self.least) == len(self.emitters) and self.least.sum() < 1.0
        checks.expect(
            bool(fits and (self.least >= 0).all()), "least", expected, checks.short(given)
        )
        window = _WINDOW * self.num_solutions if window is None else window
        self.window = checks.number("window", window, above=1.0)

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration: that of the largest emitter."""
        return int(self._sizes.max())

    @property
    def instance_size(self) -> int:
        """Number of solutions of a slot."""
        return max(emitter.instance_size for emitter in self.emitters)

    @property
    def gradient_rows(self) -> Int[np.ndarray, " n"]:
        """Indices of the solutions that need gradients if their slot goes to such an emitter."""
        return np.unique(np.concatenate([emitter.gradient_rows for emitter in self.emitters]))

    def init(self, x0: Float[Array, " sol"] | None = None) -> AdaptiveMixtureState:
        """Return a state with all emitters at ``x0``, before anything was gained."""
        first, zeros = super().init(x0), jnp.zeros(len(self.emitters), jnp.float32)
        zero, one = jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32)
        counts = first.accepted, first.filled, zeros, zeros, zero, zero
        return AdaptiveMixtureState(first.emitters, *counts, begin=zero, length=one)

    def shares(self, state: AdaptiveMixtureState) -> Float[Array, " emitters"]:
        """Return the expected share of each emitter in the next batch."""
        gain = state.gained / jnp.maximum(state.tried, 1.0)
        largest = jnp.max(gain)
        # An emitter that was not tried yet may be as good as the best.
        is_best = (state.tried == 0) | (largest == 0)
        worth = jnp.where(is_best, 1.0, gain / jnp.where(largest > 0, largest, 1.0))
        least = self._least(state)
        shares = least + (1.0 - jnp.sum(least)) * worth / jnp.sum(worth)
        # What small emitters cannot take goes to the others: those of one size and smaller ones
        # share the same slots.
        sizes = self._sizes
        taken = jnp.float32(0.0)
        for size in np.unique(sizes)[:-1]:
            is_same, room = sizes == size, float(size / self.num_solutions) - taken
            needed = jnp.sum(jnp.where(is_same, least, 0.0))
            fitting = least * jnp.minimum(1.0, room / jnp.where(needed > 0, needed, 1.0))
            above = jnp.sum(jnp.where(is_same, shares - least, 0.0))
            left = room - jnp.sum(jnp.where(is_same, fitting, 0.0))
            factor = jnp.minimum(left / jnp.where(above > 0, above, 1.0), 1.0)
            shares = jnp.where(is_same, fitting + factor * (shares - least), shares)
            taken += jnp.sum(jnp.where(is_same, shares, 0.0))
        is_large = sizes == self.num_solutions
        rest = jnp.where(is_large, shares, 0.0)
        # Without smallest shares, all of them may have brought nothing.
        rest = jnp.where(jnp.sum(rest) > 0, rest, jnp.asarray(is_large, jnp.float32))
        return jnp.where(is_large, rest * (1.0 - taken) / jnp.sum(rest), shares)

    def _least(self, state: AdaptiveMixtureState) -> Float[Array, " emitters"]:
        """Return the smallest shares, of which those above 2% depend on what new cells bring."""
        has_gain = state.recent_gain > 0
        part = jnp.where(has_gain, state.recent_new / jnp.where(has_gain, state.recent_gain, 1), 1)
        least = jnp.asarray(self.least)
        exploring = jnp.maximum(least - _LEAST, 0.0)
        return least - (1.0 - jnp.minimum(part, 1.0)) * exploring

    @property
    def _sizes(self) -> Int[np.ndarray, " emitters"]:
        """Number of solutions of each emitter."""
        return np.asarray([emitter.num_solutions for emitter in self.emitters])

    def _kinds(self, state: AdaptiveMixtureState, *, key: PRNGKeyArray) -> Int[Array, " slots"]:
        """Return the emitter that each slot goes to."""
        sizes = self._sizes
        order = np.argsort(sizes, kind="stable")  # small emitters have the first slots
        ends = jnp.cumsum(self.shares(state)[order]).at[-1].set(jnp.inf)
        slots = np.arange(self.num_solutions // self.instance_size)
        points = state.begin + state.length * (slots + uniforms(key, 1)) / len(slots)
        is_before = points[:, None] < ends
        has_slot = slots[:, None] < sizes[order] // self.instance_size
        return jnp.asarray(order)[jnp.argmax(is_before & has_slot, axis=1)]

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Elites for every slot. The emitters share them, because only one of them has the slot."""
        return tuple(ElitesWanted(self.num_slots * n, best_of) for best_of, n in self._draws)

    @property
    def num_slots(self) -> int:
        """Number of slots of the batch."""
        return self.num_solutions // self.instance_size

    @property
    def _draws(self) -> list[tuple[int, int]]:
        """Sizes of tournaments, and the largest number of such elites that a slot needs."""
        most: dict[int, int] = {}
        for part in self.parts:
            numbers: dict[int, int] = {}
            for draw in part.elites_to_ask:
                numbers[draw.best_of] = numbers.get(draw.best_of, 0) + draw.number
            most |= {best_of: max(n, most.get(best_of, 0)) for best_of, n in numbers.items()}
        return sorted(most.items())

    def ask(
        self,
        state: Any,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Give every slot to an emitter, a part of which proposes the solutions."""
        key_kinds, key_targets, key_slots = jax.random.split(key, 3)
        kinds = self._kinds(state, key=key_kinds)
        parts, drawn = self.parts, self._of_slots(elites)
        draws = [
            targets
            if emitter.targets_to_share is None or targets is None
            else _shared(
                emitter.targets_to_share,
                targets,
                jnp.any(kinds == kind),
                key=jax.random.fold_in(key_targets, kind),
            )
            for kind, emitter in enumerate(self.emitters)
        ]

        def ask(kind: int, slot: Int[Array, ""]) -> Proposal:
            emitter = self._divisible[kind]
            number = self.emitters[kind].num_solutions // self.instance_size
            index = slot - _first_slot(kinds, kind)
            part_state = emitter.part_state(state.emitters[kind], index, number)
            chosen = _of_part(parts[kind], jax.tree.map(lambda rows: rows[slot], drawn))
            chosen = elites[:0] if chosen is None else chosen
            key = jax.random.fold_in(key_slots, slot)
            return parts[kind].ask(part_state, chosen, key=key, targets=draws[kind])

        asks = [partial(ask, kind) for kind in range(len(parts))]
        asks = _of_one_structure(asks)
        # A CPU takes one slot after the other, and spends no time on emitters that do not have it.
        slots = jnp.arange(self.num_slots)
        over_slots = jax.lax.map if runs_on_cpu() else _all_at_once
        proposals = over_slots(lambda slot: jax.lax.switch(kinds[slot], asks, slot), slots)
        whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), proposals)
        aims = jax.tree.map(lambda rows: rows[: len(self.gradient_rows)], whole.aims)
        return dataclasses.replace(whole, aux=(whole.aux, kinds), aims=aims)

    def _of_slots(self, elites: Float[Array, "n sol"]) -> dict[int, Float[Array, "slots n sol"]]:
        """Return the elites of each slot, by the sizes of their tournaments."""
        drawn, start = {}, 0
        for best_of, number in self._draws:
            rows = elites[start : start + self.num_slots * number]
            drawn[best_of], start = rows.reshape(self.num_slots, number, -1), start + len(rows)
        return drawn

    def adapt(
        self,
        state: Any,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> AdaptiveMixtureState:
        """Let every emitter adapt to the slots that it had, and count what it brought."""
        assert feedback.gains is not None
        assert feedback.was_empty is not None
        aux, kinds = proposal.aux
        shares = self._split(elites, lambda emitter: emitter.num_elites_to_adapt)
        # Of several solutions in the same empty cell, one counts.
        counts = feedback.filled | (feedback.accepted & ~feedback.was_empty)
        gains = jnp.where(counts, feedback.gains, 0.0)
        adapted, accepted, filled, tried, gained = [], [], [], [], []
        for kind, emitter in enumerate(self.emitters):
            # The slot of each of its parts. Those without one rest.
            parts = np.arange(emitter.num_solutions // self.instance_size)
            slots = jnp.minimum(_first_slot(kinds, kind) + parts, self.num_slots - 1)
            of_parts = partial(_rows_of_slots, slots=slots, num_slots=self.num_slots)
            mine = jax.tree.map(lambda leaf, of=of_parts: of(leaf) if leaf.ndim else leaf, feedback)
            works = parts < jnp.sum(kinds == kind)
            is_used = jnp.repeat(works, self.instance_size)
            mine = dataclasses.replace(
                mine,
                accepted=mine.accepted & is_used,
                filled=mine.filled & is_used,
                is_used=is_used if mine.is_used is None else is_used & mine.is_used,
            )
            asked = Proposal(of_parts(proposal.solutions), jax.tree.map(of_parts, aux[kind]))
            adapted.append(emitter.adapt(state.emitters[kind], asked, mine, shares[kind]))
            accepted.append(jnp.sum(mine.accepted, dtype=jnp.int32))
            filled.append(jnp.sum(mine.filled, dtype=jnp.int32))
            tried.append(jnp.sum(is_used, dtype=jnp.float32))
            gained.append(jnp.sum(jnp.where(is_used, of_parts(gains), 0.0)))
        # Of each by its own solutions: targets are reached after tens of iterations of work, which
        # are hundreds of iterations for an emitter with a small share.
        kept = (1.0 - 1.0 / self.window) ** jnp.stack(tried)
        kept_of_all = (1.0 - 1.0 / self.window) ** len(gains)
        return AdaptiveMixtureState(
            tuple(adapted),
            state.accepted + jnp.stack(accepted),
            state.filled + jnp.stack(filled),
            kept * state.tried + jnp.stack(tried),
            kept * state.gained + jnp.stack(gained),
            kept_of_all * state.recent_gain + jnp.sum(gains),
            kept_of_all * state.recent_new + jnp.sum(jnp.where(feedback.filled, gains, 0.0)),
            state.begin,
            state.length,
        )

    def metrics(self, state: Any) -> dict[str, Array]:
        """Return the metrics of a mixture, and the share of each emitter in the next batch."""
        shares = zip(self.labels, self.shares(state), strict=True)
        return super().metrics(state) | {f"{label}_share": share for label, share in shares}

    def divides_into(self, num_parts: int) -> bool:
        """Return true if slots are divided evenly, of emitters that can each fill the batch."""
        sizes = {emitter.num_solutions for emitter in self.emitters}
        is_even = len(sizes) == 1 and self.num_slots % num_parts == 0
        return num_parts == 1 or (is_even and super().divides_into(num_parts))

    def part(self, num_parts: int) -> "AdaptiveMixture":
        """Return a mixture of one part of every emitter."""
        if num_parts == 1:
            return self
        parts = [emitter.part(num_parts) for emitter in self._divisible]
        return AdaptiveMixture(parts, least=self.least.tolist(), window=self.window)

    def part_state(self, state: Any, index: Int[Array, ""], num_parts: int) -> AdaptiveMixtureState:
        """Return the states of one part of every emitter, with the counts of all parts."""
        length = state.length / num_parts
        begin = state.begin + length * index.astype(jnp.float32)
        part = super().part_state(state, index, num_parts)
        return dataclasses.replace(part, begin=begin, length=length)

    def with_part_state(
        self,
        state: Any,
        index: Int[Array, ""],
        num_parts: int,
        part_state: Any,
    ) -> AdaptiveMixtureState:
        """Return the state with one part of every emitter replaced."""
        whole = super().with_part_state(state, index, num_parts, part_state)
        return dataclasses.replace(whole, begin=state.begin, length=state.length)


def _of_part(
    part: Emitter, drawn: dict[int, Float[Array, "n sol"]]
) -> Float[Array, "m sol"] | None:
    """Return the elites that a part asks for, or ``None``."""
    starts, chosen = dict.fromkeys(drawn, 0), []
    for draw in part.elites_to_ask:
        start = starts[draw.best_of]
        chosen.append(drawn[draw.best_of][start : start + draw.number])
        starts[draw.best_of] += draw.number
    return jnp.concatenate(chosen) if chosen else None


def _shared(
    wanted: TargetsWanted, targets: DrawsTargets, is_needed: Bool[Array, ""], *, key: PRNGKeyArray
) -> DrawsTargets:
    """Draw targets once, if they are needed, for all slots of an emitter."""
    draw = partial(targets, **wanted._asdict(), key=key)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw))
    drawn = jax.lax.cond(is_needed, draw, lambda: blank)
    return lambda *_, **__: drawn


def _of_one_structure(asks: Sequence[Callable[..., Proposal]]) -> list[Callable[..., Proposal]]:
    """Return functions whose proposals have the data of all, zero for those of the others."""
    shapes = [jax.eval_shape(ask, jnp.int32(0)) for ask in asks]
    rows = shapes[0].solutions.shape[0]
    has_aims = any(shape.aims is not None for shape in shapes)
    has_targets = any(shape.targets is not None for shape in shapes)
    none = jnp.full(rows, -1)
    no_aims = Aims(jnp.zeros(rows, bool), jnp.zeros(rows, jnp.float32), none)

    def of(kind: int, slot: Int[Array, ""]) -> Proposal:
        asked = asks[kind](slot)
        aux = [jax.tree.map(jnp.zeros_like, shape.aux) for shape in shapes]
        aux[kind] = asked.aux
        aims = no_aims if has_aims and asked.aims is None else asked.aims
        targets = none + 1 if has_targets and asked.targets is None else asked.targets
        return Proposal(asked.solutions, tuple(aux), aims, targets)

    return [partial(of, kind) for kind in range(len(asks))]


def _first_slot(kinds: Int[Array, " slots"], kind: int) -> Int[Array, ""]:
    """Return the first slot of an emitter; its slots are one after the other."""
    return jnp.argmax(kinds == kind)


def _rows_of_slots(rows: Array, slots: Int[Array, " parts"], num_slots: int) -> Array:
    """Return the rows of some slots."""
    by_slot = rows.reshape(num_slots, -1, *rows.shape[1:])
    return by_slot[slots].reshape(-1, *rows.shape[1:])


def _all_at_once(function: Callable[..., Any], slots: Int[Array, " slots"]) -> Any:
    return jax.vmap(function)(slots)
