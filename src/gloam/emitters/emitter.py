"""The interface of emitters: they propose solutions and adapt to how these rank."""

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.records import Feedback, Proposal

# Largest number of solutions in a part of an `EliteEmitter`. The compiled call of a part takes
# about as long as for one solution.
_LARGEST_PART = 36


class Bounds(eqx.Module):
    """Bounds of solutions.

    If every variable has bounds on both sides, the search works in the unit box: step sizes are
    shares of the widths, and the search does not depend on the units of the variables.
    """

    lower: Float[Array, " sol"]
    """Infinite where a side is open, as ``upper``."""
    upper: Float[Array, " sol"]
    is_box: bool = eqx.field(static=True)
    """True if every variable has bounds on both sides."""

    def __init__(self, lower: ArrayLike, upper: ArrayLike):
        self.lower, self.upper = (jnp.asarray(side, jnp.float32) for side in (lower, upper))
        self.is_box = bool(np.isfinite(lower).all() and np.isfinite(upper).all())

    @property
    def width(self) -> Float[Array, " sol"]:
        """Width of each variable's range."""
        return self.upper - self.lower

    def clip(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Return the solutions clipped to the bounds."""
        return jnp.clip(solutions, self.lower, self.upper)


class Coordinates(NamedTuple):
    """Coordinates in which emitters search: a solution is ``origin + scale * point``."""

    origin: Float[Array, " sol"]
    scale: Float[Array, " sol"]

    def points_of(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Convert solutions to these coordinates."""
        return (solutions - self.origin) / self.scale

    def solutions_of(self, points: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Convert points in these coordinates to solutions."""
        return self.origin + self.scale * points


class ElitesWanted(NamedTuple):
    """A draw of random elites that an emitter asks for."""

    number: int
    best_of: int = 1
    """Size of a tournament: each elite has the largest improvement of this many random ones."""


class Emitter(eqx.Module):
    """Frozen settings of an emitter. Everything that it learns is in its state."""

    x0: eqx.AbstractVar[Float[Array, " sol"]]
    """Starting solution, unless a seed has its own."""

    @property
    @abstractmethod
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""

    @property
    def label(self) -> str:
        """Prefix of the emitter's metrics when it is part of a `Mixture`."""
        return "emitter"

    @property
    def gradient_rows(self) -> Int[np.ndarray, " n"]:
        """Indices of the solutions whose gradients `adapt` needs; none by default."""
        return np.arange(0)

    @property
    def num_gradients(self) -> int:
        """Number of gradients that the emitter needs in each iteration."""
        return len(self.gradient_rows)

    @property
    @abstractmethod
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Draws of elites that `ask` receives, one after the other."""

    @property
    @abstractmethod
    def num_elites_to_adapt(self) -> int:
        """Number of random elites that `adapt` receives, for restarts."""

    @abstractmethod
    def init(self, x0: Float[Array, " sol"] | None = None) -> Any:
        """Return the state before the first iteration, at ``x0`` or at the emitter's own."""

    @abstractmethod
    def ask(self, state: Any, elites: Float[Array, "n sol"], *, key: PRNGKeyArray) -> Proposal:
        """Propose solutions."""

    @abstractmethod
    def adapt(
        self,
        state: Any,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> Any:
        """Adapt to the evaluation of a proposal.

        Args:
            state: State that the proposal came from.
            proposal: The evaluated proposal.
            feedback: How its solutions ranked.
            elites: ``num_elites_to_adapt`` random elites.
        """

    def metrics(self, state: Any) -> dict[str, Array]:
        """Return numbers for the table of metrics, counted since the start of the search."""
        return {"restarts": jnp.zeros((), jnp.int32)}


@runtime_checkable
class Divisible(Protocol):
    """An emitter that consists of equal parts, for asynchronous search.

    Each part asks and adapts independently of the others. In the proposals of a part, arrays of
    ``aux`` have a leading axis.
    """

    @property
    def num_parts(self) -> int:
        """Preferred number of parts."""
        ...

    def divides_into(self, num_parts: int) -> bool:
        """Return whether there is an equal division into ``num_parts`` parts."""
        ...

    def part(self, num_parts: int) -> Emitter:
        """Return an emitter like one of ``num_parts`` parts."""
        ...

    def part_state(self, state: Any, index: Int[Array, ""]) -> Any:
        """Return the state of one part."""
        ...

    def with_part_state(self, state: Any, index: Int[Array, ""], part_state: Any) -> Any:
        """Return the state of all parts after one of them has changed."""
        ...


class EliteEmitter(Emitter):
    """An emitter that proposes ``batch_size`` variations of elites and never restarts.

    It divides into smaller batches, which share one state.
    """

    batch_size: eqx.AbstractVar[int]
    bounds: eqx.AbstractVar[Bounds | None]

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""
        return self.batch_size

    @property
    def num_elites_to_adapt(self) -> int:
        """Always 0: there are no restarts."""
        return 0

    @property
    def num_parts(self) -> int:
        """Number of batches of at most 36 solutions: small batches vary newer elites."""
        sizes = range(_LARGEST_PART, 0, -1)
        return self.batch_size // next(size for size in sizes if self.batch_size % size == 0)

    def divides_into(self, num_parts: int) -> bool:
        """Return whether the batch has ``num_parts`` equal parts."""
        return self.batch_size % num_parts == 0

    def part(self, num_parts: int) -> "EliteEmitter":
        """Return the emitter with a smaller batch."""
        return dataclasses.replace(self, batch_size=self.batch_size // num_parts)

    def part_state(self, state: Any, index: Int[Array, ""]) -> Any:
        """Return the shared state."""
        return state

    def with_part_state(self, state: Any, index: Int[Array, ""], part_state: Any) -> Any:
        """Return the shared state."""
        return part_state

    def varied(
        self, elites: Float[Array, "batch sol"], noise: Float[Array, "batch sol"], sigma: Any
    ) -> Float[Array, "batch sol"]:
        """Return elites with noise, of which ``sigma`` is the standard deviation."""
        if self.bounds is not None and self.bounds.is_box:
            sigma = sigma * self.bounds.width
        return elites + sigma * noise

    def clipped(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch sol"]:
        """Return the solutions clipped to the bounds, if there are any."""
        return solutions if self.bounds is None else self.bounds.clip(solutions)


def coordinates_of(
    sigma0: float | Float[Array, " sol"], bounds: Bounds | None
) -> Coordinates | None:
    """The unit box, or units of a vector ``sigma0``; ``None`` for those of the solutions."""
    if bounds is not None and bounds.is_box:
        return Coordinates(bounds.lower, bounds.width)
    vector = jnp.asarray(sigma0)
    return Coordinates(jnp.zeros_like(vector), vector) if vector.ndim else None


def checked_start(x0: Any, bounds: Any) -> tuple[Float[Array, " sol"], Bounds | None]:
    """Return the starting solution and the bounds of an emitter."""
    start = checks.finite_array("x0", x0, ndim=1, fix="Give one starting solution.")
    if isinstance(bounds, Bounds):
        bounds = np.asarray(bounds.lower), np.asarray(bounds.upper)
    box = checks.solution_bounds(bounds, start)
    return jnp.asarray(start, jnp.float32), None if box is None else Bounds(*box)


def checked_step(
    name: str,
    step: Any,
    size: int,
    bounds: Bounds | None,
    *,
    default: float | None = None,
    least: float = 0.0,
) -> float | Float[Array, " sol"]:
    """Return a step size: a share of the width of a box, or else a number or a vector.

    Args:
        name: Name of the argument.
        step: Its value.
        size: Number of variables.
        bounds: Bounds of the solutions.
        default: Step in a box if ``step`` is ``None``.
        least: Smallest step outside of a box.
    """
    if bounds is not None and bounds.is_box:
        step = default if step is None else step
        fix = "With bounds on both sides it is a share of their width, such as 0.2."
        return checks.number(name, step, above=0.0, at_most=1.0, fix=fix)
    checks.expect(
        step is not None,
        name,
        "a number for solutions without bounds on both sides",
        "None",
        "Give about a fifth of the range in which you expect good solutions, or "
        "bounds=(lower, upper).",
    )
    is_vector = isinstance(step, (list, tuple)) or getattr(step, "ndim", 0) > 0
    steps = (
        checks.finite_array(name, step, ndim=1)
        if is_vector
        else [checks.number(name, step, above=0.0)]
    )
    expected = f"one number, or {size} for the variables"
    checks.expect(not is_vector or len(steps) == size, name, expected, f"{len(steps)}")
    limits = f"numbers between {least:g} and 1e11"
    inside = all(least < one < 1e11 for one in steps)
    checks.expect(inside, name, limits, checks.short(step), "Scale the solutions.")
    return jnp.asarray(step, jnp.float32) if is_vector else float(steps[0])
