"""An emitter made of emitters, each with its share of the batch."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.emitters.emitter import ElitesWanted, Emitter
from gloam.records import Feedback, Proposal


class MixtureState(eqx.Module):
    """The states of the parts, and what each part brought since the start of the search."""

    parts: tuple[Any, ...]
    improved: Int[Array, " parts"]
    """Solutions that improved the archive."""
    filled: Int[Array, " parts"]
    """Solutions that landed in an empty cell."""


class Mixture(Emitter):
    """Several emitters that propose a batch together.

    All parts feed the same archive and the same discount. Each adapts to its own solutions.

    Args:
        parts: The emitters. They search solutions of one size, and the first one's ``x0`` counts.

    Example:
        >>> import numpy as np
        >>> from gloam.emitters import CmaEmitters, Variation
        >>> x0 = np.zeros(10)
        >>> half = CmaEmitters(x0, sigma0=0.5, num_emitters=2, batch_size=20)
        >>> mixture = Mixture([half, Variation(x0, sigma=0.02, line_sigma=0.5, batch_size=40)])
        >>> mixture.num_solutions
        80
    """

    parts: tuple[Emitter, ...]

    def __init__(self, parts: Sequence[Emitter]):
        fix = "Give a list of emitters."
        checks.expect(
            isinstance(parts, (list, tuple)) and len(parts) > 0, "parts", "emitters", parts, fix
        )
        for part in parts:
            checks.instance("parts", part, Emitter, fix)
        sizes = [part.x0.shape[0] for part in parts]
        checks.expect(
            len(set(sizes)) == 1, "parts", "emitters of solutions of one size", f"sizes {sizes}"
        )
        self.parts = tuple(parts)

    @property
    def x0(self) -> Float[Array, " sol"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where searches start."""
        return self.parts[0].x0

    @property
    def num_solutions(self) -> int:
        """Solutions proposed in each iteration, by all parts."""
        return sum(part.num_solutions for part in self.parts)

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Those of all parts."""
        return tuple(draw for part in self.parts for draw in part.elites_to_ask)

    @property
    def num_elites_to_adapt(self) -> int:
        """Those of all parts."""
        return sum(part.num_elites_to_adapt for part in self.parts)

    def init(self, x0: Float[Array, " sol"] | None = None) -> MixtureState:
        """Every part at ``x0``, or else at the first part's."""
        start = self.x0 if x0 is None else x0
        zeros = jnp.zeros(len(self.parts), jnp.int32)
        return MixtureState(tuple(part.init(start) for part in self.parts), zeros, zeros)

    def ask(
        self, state: MixtureState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """The proposals of all parts, one after another."""
        shares = self._split(elites, lambda part: sum(draw.number for draw in part.elites_to_ask))
        keys = jax.random.split(key, len(self.parts))
        proposals = [
            part.ask(own, share, key=key)
            for part, own, share, key in zip(self.parts, state.parts, shares, keys, strict=True)
        ]
        solutions = jnp.concatenate([proposal.solutions for proposal in proposals])
        return Proposal(solutions, tuple(proposal.memory for proposal in proposals))

    def adapt(
        self,
        state: MixtureState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> MixtureState:
        """Every part adapts to its own solutions."""
        shares = self._split(elites, lambda part: part.num_elites_to_adapt)
        learned, improved, filled, start = [], [], [], 0
        for place, (part, own) in enumerate(zip(self.parts, state.parts, strict=True)):
            rows = slice(start, start + part.num_solutions)
            start = rows.stop
            answer = jax.tree.map(
                lambda leaf, rows=rows: leaf[rows] if leaf.ndim else leaf, feedback
            )
            asked = Proposal(proposal.solutions[rows], proposal.memory[place])
            learned.append(part.adapt(own, asked, answer, shares[place]))
            improved.append(jnp.sum(answer.improved, dtype=jnp.int32))
            filled.append(jnp.sum(answer.filled, dtype=jnp.int32))
        return MixtureState(
            tuple(learned), state.improved + jnp.stack(improved), state.filled + jnp.stack(filled)
        )

    def num_restarts(self, state: MixtureState) -> Int[Array, ""]:
        """Restarts of all parts since the start of the search."""
        counts = zip(self.parts, state.parts, strict=True)
        return jnp.sum(jnp.stack([part.num_restarts(own) for part, own in counts]))

    def metrics(self, state: MixtureState) -> dict[str, Array]:
        """Restarts of all parts; restarts, improvements and filled cells of each part."""
        found: dict[str, Array] = {"restarts": self.num_restarts(state)}
        for place, (name, part) in enumerate(zip(self.names, self.parts, strict=True)):
            own = part.metrics(state.parts[place])
            found |= {f"{figure}_{name}": value for figure, value in own.items()}
            found[f"improved_{name}"] = state.improved[place]
            found[f"filled_{name}"] = state.filled[place]
        return found

    @property
    def num_parts(self) -> int:
        """The largest number of equal parts that all emitters can be divided into."""
        numbers = {part.num_parts for part in self.parts}
        return max((number for number in numbers if self.divides_into(number)), default=1)

    def divides_into(self, num_parts: int) -> bool:
        """Where all emitters do."""
        return all(part.divides_into(num_parts) for part in self.parts)

    def part(self, num_parts: int | None = None) -> "Mixture":
        """A part of every emitter."""
        number = num_parts or self.num_parts
        return self if number == 1 else Mixture([part.part(number) for part in self.parts])

    def part_state(self, state: MixtureState, index: Int[Array, ""]) -> MixtureState:
        """The states of a part of every emitter, and what all parts brought."""
        if self.num_parts == 1:
            return state
        pairs = zip(self.parts, state.parts, strict=True)
        own = tuple(part.part_state(all_, index) for part, all_ in pairs)
        return MixtureState(own, state.improved, state.filled)

    def with_part_state(
        self, state: MixtureState, index: Int[Array, ""], part_state: MixtureState
    ) -> MixtureState:
        """The states with others for a part of every emitter."""
        if self.num_parts == 1:
            return part_state
        triples = zip(self.parts, state.parts, part_state.parts, strict=True)
        whole = tuple(part.with_part_state(all_, index, one) for part, all_, one in triples)
        return MixtureState(whole, part_state.improved, part_state.filled)

    @property
    def names(self) -> list[str]:
        """Names of the parts in the metrics: their kinds, numbered where a kind comes again."""
        kinds = [type(part).__name__.lower() for part in self.parts]
        return [
            f"{kind}_{kinds[:place].count(kind) + 1}" if kinds.count(kind) > 1 else kind
            for place, kind in enumerate(kinds)
        ]

    def _split(self, rows: Array, size: Callable[[Emitter], int]) -> list[Array]:
        """The rows of each part."""
        shares, start = [], 0
        for part in self.parts:
            shares.append(rows[start : start + size(part)])
            start += size(part)
        return shares
