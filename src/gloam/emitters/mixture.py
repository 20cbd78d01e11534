"""Mixtures of emitters, with fixed shares of the batch or with shares that adapt."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.emitters.emitter import (
    Bounds,
    Branching,
    Divisible,
    ElitesWanted,
    Emitter,
    check_elites_wanted,
)
from gloam.records import Aims, DrawsTargets, Feedback, Proposal


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
            check_elites_wanted(emitter)
        sizes = [emitter.x0.shape[0] for emitter in emitters]
        expected = "emitters for solutions of one size"
        checks.expect(len(set(sizes)) == 1, "emitters", expected, f"sizes {sizes}")
        forms = [emitter.form for emitter in emitters]
        expected = "emitters for one space"
        checks.expect(all(form == forms[0] for form in forms), "emitters", expected, "several")
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
        self,
        state: MixtureState,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Concatenate the proposals of all emitters."""
        shares = self._split(elites, _num_elites)
        keys = jax.random.split(key, len(self.emitters))
        members = zip(self.emitters, state.emitters, shares, keys, strict=True)
        proposals = [
            emitter.ask(member, share, key=key, targets=targets)
            for emitter, member, share, key in members
        ]
        solutions = jnp.concatenate([proposal.solutions for proposal in proposals])
        aux, aims = tuple(proposal.aux for proposal in proposals), _all_aims(proposals)
        return Proposal(solutions, aux, aims, _all_targets(proposals))

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
        for index, emitter in enumerate(self.emitters):
            rows = slice(start, start + emitter.num_solutions)
            start = rows.stop
            mine = jax.tree.map(lambda leaf, rows=rows: leaf[rows] if leaf.ndim else leaf, feedback)
            asked = Proposal(proposal.solutions[rows], proposal.aux[index])
            adapted.append(emitter.adapt(state.emitters[index], asked, mine, shares[index]))
            accepted.append(jnp.sum(mine.accepted, dtype=jnp.int32))
            filled.append(jnp.sum(mine.filled, dtype=jnp.int32))
        accepted, filled = state.accepted + jnp.stack(accepted), state.filled + jnp.stack(filled)
        return MixtureState(tuple(adapted), accepted, filled)

    def started_at(self, state: MixtureState, elites: Float[Array, "n sol"]) -> MixtureState:
        """Let every emitter begin at its own elites."""
        shares = self._split(elites, lambda emitter: emitter.num_elites_to_adapt)
        triples = zip(self.emitters, state.emitters, shares, strict=True)
        started = tuple(emitter.started_at(member, share) for emitter, member, share in triples)
        return dataclasses.replace(state, emitters=started)

    def metrics(self, state: MixtureState) -> dict[str, Array]:
        """Return the restarts of all emitters, and the metrics of each under its label."""
        by_label: dict[str, Array] = {}
        restarts = []
        for index, (label, emitter) in enumerate(zip(self.labels, self.emitters, strict=True)):
            metrics = emitter.metrics(state.emitters[index])
            restarts.append(metrics["restarts"])
            metrics |= {"accepted": state.accepted[index], "filled": state.filled[index]}
            by_label |= {f"{label}_{metric}": value for metric, value in metrics.items()}
        return {"restarts": jnp.sum(jnp.stack(restarts), dtype=jnp.int32)} | by_label

    @property
    def labels(self) -> list[str]:
        """Labels of the emitters, numbered if several have the same."""
        labels = [emitter.label for emitter in self.emitters]
        return [
            f"{label}_{labels[:index].count(label) + 1}" if labels.count(label) > 1 else label
            for index, label in enumerate(labels)
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

    def part_state(self, state: MixtureState, index: Int[Array, ""], num_parts: int) -> Any:
        """Return the states of one part of every emitter, with the counts of all parts."""
        if num_parts == 1:
            return state
        pairs = zip(self._divisible, state.emitters, strict=True)
        parts = tuple(emitter.part_state(whole, index, num_parts) for emitter, whole in pairs)
        return dataclasses.replace(state, emitters=parts)

    def with_part_state(
        self,
        state: MixtureState,
        index: Int[Array, ""],
        num_parts: int,
        part_state: MixtureState,
    ) -> Any:
        """Return the state with one part of every emitter replaced."""
        if num_parts == 1:
            return part_state
        triples = zip(self._divisible, state.emitters, part_state.emitters, strict=True)
        replaced = tuple(
            emitter.with_part_state(whole, index, num_parts, part)
            for emitter, whole, part in triples
        )
        return dataclasses.replace(part_state, emitters=replaced)

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


def _num_elites(emitter: Emitter) -> int:
    """Return the number of elites that an emitter asks for."""
    return sum(draw.number for draw in emitter.elites_to_ask)


def _all_aims(proposals: list[Proposal]) -> Aims | None:
    """Return what the solutions of all proposals climb."""
    aims = [proposal.aims for proposal in proposals if proposal.aims is not None]
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *aims) if aims else None


def _all_targets(proposals: list[Proposal]) -> Int[Array, " batch"] | None:
    """Return the targets of all proposals: cell 0 for solutions without one."""
    if all(proposal.targets is None for proposal in proposals):
        return None
    return jnp.concatenate(
        [
            jnp.zeros(len(proposal.solutions), jnp.int32)
            if proposal.targets is None
            else proposal.targets
            for proposal in proposals
        ]
    )
