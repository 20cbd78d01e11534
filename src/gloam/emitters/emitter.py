"""The interface of emitters: they propose solutions and adapt to how these rank."""

import dataclasses
from abc import abstractmethod
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import uniforms
from gloam._tools.registry import register
from gloam.emitters.discrete import changed, spliced
from gloam.records import DrawsTargets, Feedback, Proposal
from gloam.spaces import Discrete, Form, Space, form_of

# Largest number of solutions in a part of an `EliteEmitter`. The compiled call of a part takes
# about as long as for one solution.
_LARGEST_PART = 36
# Numbers of keys that no other draw of an emitter has.
_CHANGES, _COPIES, _SPLICES = 2**32 - 1, 2**32 - 2, 2**32 - 8


Outside = Literal["clip", "reflect"]
"""What happens to numbers outside the bounds."""


@register
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
    is_open: bool = eqx.field(static=True)
    """True if no variable has a bound."""
    outside: Outside = eqx.field(static=True)
    """What happens to a solution outside: ``"clip"`` or ``"reflect"``."""
    form: Form | None = eqx.field(static=True)
    """What the solutions stand for, if they are not plain vectors."""

    def __init__(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        outside: Outside = "clip",
        form: Form | None = None,
    ):
        self.lower, self.upper = (jnp.asarray(side, jnp.float32) for side in (lower, upper))
        self.is_box = bool(np.isfinite(lower).all() and np.isfinite(upper).all())
        self.is_open = not (np.isfinite(lower).any() or np.isfinite(upper).any())
        checks.choice("outside", outside, get_args(Outside))
        self.outside, self.form = outside, form
        if form is not None:
            expected = f"bounds of {form.size} numbers, as the variables have"
            checks.expect(self.lower.size == form.size, "bounds", expected, f"{self.lower.size}")

    @property
    def width(self) -> Float[Array, " sol"]:
        """Width of each variable's range."""
        return self.upper - self.lower

    @property
    def discrete(self) -> Discrete | None:
        """The variables that are whole numbers, if there are any."""
        return None if self.form is None else self.form.discrete

    def active(self, solutions: Float[Array, "*n sol"]) -> Bool[Array, "*n sol"] | None:
        """Return a mask of the numbers of active variables; ``None`` without conditions."""
        if not isinstance(self.form, Space) or not self.form.is_conditional:
            return None
        return jnp.asarray(self.form.active_numbers(solutions))

    def keep(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Return solutions inside the bounds: each number is clipped to them, or reflected."""
        return kept_between(solutions, self.lower, self.upper, self.outside)

    def snap(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Return solutions inside the bounds, with whole numbers where these are meant."""
        inside = self.keep(solutions)
        return inside if self.discrete is None else self.discrete.snapped(inside)


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


def check_elites_wanted(emitter: Any) -> None:
    """Check the draws of elites that an emitter of the user's own asks for."""
    draws = emitter.elites_to_ask
    is_tuple = isinstance(draws, (tuple, list))
    fits = is_tuple and all(isinstance(draw, ElitesWanted) for draw in draws)
    name = f"elites_to_ask of {type(emitter).__name__}"
    fix = "Give (ElitesWanted(24),) for 24 random elites, or () if ask needs none."
    expected = "a tuple of gloam.emitters.ElitesWanted"
    checks.expect(fits, name, expected, checks.short(draws), fix)
    for draw in draws:
        checks.integer(f"number in {name}", draw.number, minimum=1)
        checks.integer(f"best_of in {name}", draw.best_of, minimum=1)


class TargetsWanted(NamedTuple):
    """A draw of targets that the parts of an emitter share."""

    number: int
    num_near: int = 1
    near_elites: bool = False


class Emitter(eqx.Module):
    """Frozen settings of an emitter. Everything that it learns is in its state."""

    x0: eqx.AbstractVar[Float[Array, " sol"]]
    """Starting solution, unless a seed has its own."""

    @property
    def form(self) -> Form | None:
        """What solutions stand for: a space, a tree, or ``None`` for plain vectors."""
        return None if self.solution_bounds is None else self.solution_bounds.form

    @property
    def solution_bounds(self) -> Bounds | None:
        """Bounds of the solutions; by default the attribute ``bounds``, if there is one."""
        return getattr(self, "bounds", None)

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
    def instance_size(self) -> int:
        """Number of successive solutions that the emitter ranks together; 1 by default.

        All of them are evaluated, or none.
        """
        return 1

    @property
    @abstractmethod
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Draws of elites that `ask` receives, one after the other."""

    @property
    def targets_to_share(self) -> TargetsWanted | None:
        """Targets that all parts of a proposal share; none by default."""
        return None

    @property
    @abstractmethod
    def num_elites_to_adapt(self) -> int:
        """Number of random elites that `adapt` receives, for restarts."""

    @abstractmethod
    def init(self, x0: Float[Array, " sol"] | None = None) -> Any:
        """Return the state before the first iteration, at ``x0`` or at the emitter's own."""

    @abstractmethod
    def ask(
        self,
        state: Any,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Propose solutions.

        Args:
            state: State of the emitter.
            elites: The draws of `elites_to_ask`.
            key: Random key.
            targets: Draws empty cells to aim at, for emitters that need some.
        """

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

    def started_at(self, state: Any, elites: Float[Array, "n sol"]) -> Any:
        """Return a first state that begins at ``num_elites_to_adapt`` elites; unchanged by default.

        Emitters that vary elites need not change.
        """
        return state

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

    def part_state(self, state: Any, index: Int[Array, ""], num_parts: int) -> Any:
        """Return the state of one part."""
        ...

    def with_part_state(
        self, state: Any, index: Int[Array, ""], num_parts: int, part_state: Any
    ) -> Any:
        """Return the state of all parts after one of them has changed."""
        ...


def rows_of_part(state: Any, index: Int[Array, ""], num_parts: int) -> Any:
    """Return the rows of one part of every array. Numbers belong to all parts.

    >>> rows_of_part({"means": jnp.arange(6), "restarts": jnp.int32(2)}, jnp.int32(1), 3)
    {'means': Array([2, 3], dtype=int32), 'restarts': Array(2, dtype=int32)}
    """

    def rows(leaf: Array) -> Array:
        size = leaf.shape[0] // num_parts
        return jax.lax.dynamic_slice_in_dim(leaf, index * size, size)

    return jax.tree.map(lambda leaf: rows(leaf) if leaf.ndim else leaf, state)


def with_rows_of_part(state: Any, index: Int[Array, ""], part_state: Any) -> Any:
    """Return the state with the rows of one part and the numbers replaced."""

    def replaced(leaf: Array, new: Array) -> Array:
        start = index * new.shape[0]
        return jax.lax.dynamic_update_slice_in_dim(leaf, new, start, 0)

    return jax.tree.map(
        lambda leaf, new: replaced(leaf, new) if leaf.ndim else new, state, part_state
    )


@runtime_checkable
class Branching(Protocol):
    """An emitter that proposes points first, and then branches along their gradients.

    Its proposals begin with these points.
    """

    def points(self, state: Any) -> Float[Array, "points sol"]:
        """Return the points."""
        ...

    def with_jacobians(self, state: Any, jacobians: Float[Array, "points outputs sol"]) -> Any:
        """Return the state for `ask` and `adapt`, with the gradients of objective and measures."""
        ...


class EliteEmitter(Emitter):
    """An emitter that proposes ``batch_size`` variations of elites and never restarts.

    It has no state, and divides into smaller batches.
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

    def part_state(self, state: None, index: Int[Array, ""], num_parts: int) -> None:
        """Return ``None``: there is no state."""

    def with_part_state(
        self, state: None, index: Int[Array, ""], num_parts: int, part_state: None
    ) -> None:
        """Return ``None``: there is no state."""

    def init(self, x0: Float[Array, " sol"] | None = None) -> None:
        """Return ``None``: there is no state."""

    def adapt(
        self,
        state: None,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> None:
        """Do nothing: there is no state."""

    def varied(
        self, elites: Float[Array, "batch sol"], noise: Float[Array, "batch sol"], sigma: Any
    ) -> Float[Array, "batch sol"]:
        """Return elites with noise, of which ``sigma`` is the standard deviation."""
        if self.bounds is not None and self.bounds.is_box:
            sigma = sigma * self.bounds.width
        return elites + sigma * noise

    def completed(
        self, solutions: Float[Array, "*n sol"], donors: Float[Array, "*n sol"]
    ) -> Float[Array, "*n sol"]:
        """Return elites with the values of other elites for variables that are inactive.

        A move that makes such a variable active then begins at a value that an elite has, and not
        between this value and the starting value. Variables that are inactive in both keep the
        starting value.
        """
        active = None if self.bounds is None else self.bounds.active(solutions)
        return solutions if active is None else jnp.where(active, solutions, donors)

    def with_categories(
        self,
        solutions: Float[Array, "batch sol"],
        first: Float[Array, "batch sol"],
        second: Float[Array, "batch sol"],
        moves: bool | Bool[Array, "batch sol"] = True,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "batch sol"]:
        """Return the solutions with categories of one of two elites: copied, never in between.

        Those of the second elite are taken with probability 1/2 where ``moves`` is true.
        """
        discrete = None if self.bounds is None else self.bounds.discrete
        if discrete is None:
            return solutions
        chance = uniforms(jax.random.fold_in(key, _COPIES), first.size).reshape(first.shape)
        chosen = jnp.where(moves & (chance < 0.5), second, first)
        solutions = jnp.where(discrete.is_category, chosen, solutions)
        return spliced(discrete, solutions, first, second, key=jax.random.fold_in(key, _SPLICES))

    def inside(
        self, solutions: Float[Array, "batch sol"], *, key: PRNGKeyArray
    ) -> Float[Array, "batch sol"]:
        """Return the solutions within the bounds, with some changes of whole numbers."""
        if self.bounds is None:
            return solutions
        solutions, discrete = self.bounds.snap(solutions), self.bounds.discrete
        if discrete is None:
            return solutions
        return changed(discrete, solutions, key=jax.random.fold_in(key, _CHANGES))


def kept_between(points: Array, lower: Array, upper: Array, outside: Outside) -> Array:
    """Return points between bounds: what is outside is clipped, or reflected at the bound."""
    if outside == "reflect":
        points = jnp.where(points < lower, 2 * lower - points, points)
        points = jnp.where(points > upper, 2 * upper - points, points)
    return jnp.clip(points, lower, upper)  # reflected points may be beyond the other bound


def coordinates_of(
    sigma0: float | Float[Array, " sol"], bounds: Bounds | None
) -> Coordinates | None:
    """The unit box, or units of a vector ``sigma0``; ``None`` for those of the solutions."""
    if bounds is not None and bounds.is_box:
        return Coordinates(bounds.lower, bounds.width)
    vector = jnp.asarray(sigma0)
    return Coordinates(jnp.zeros_like(vector), vector) if vector.ndim else None


def checked_start(
    x0: Any, bounds: Any, outside: Outside | None = None
) -> tuple[Float[Array, " sol"], Bounds | None]:
    """Return the starting solution and the bounds of an emitter.

    ``x0`` may be a `gloam.Space` or a pytree of arrays, which the bounds then remember.
    """
    form, start = form_of(x0)
    if isinstance(form, Space):
        fix = "Give the bounds of each variable in the space."
        checks.expect(bounds is None, "bounds", "None for a space", checks.short(bounds), fix)
        bounds = form.bounds
    start = checks.finite_array("x0", start, ndim=1, fix="Give one starting solution.")
    if isinstance(bounds, Bounds):
        form, outside = bounds.form, bounds.outside if outside is None else outside
        bounds = np.asarray(bounds.lower), np.asarray(bounds.upper)
    box = checks.solution_bounds((None, None) if bounds is None and form else bounds, start)
    outside = "clip" if outside is None else outside
    checks.choice("outside", outside, get_args(Outside))  # also without bounds
    return jnp.asarray(start, jnp.float32), None if box is None else Bounds(*box, outside, form)


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
    inside = all(least < number < 1e11 for number in steps)
    checks.expect(inside, name, limits, checks.short(step), "Scale the solutions.")
    return jnp.asarray(step, jnp.float32) if is_vector else float(steps[0])
