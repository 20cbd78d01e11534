"""What a solution stands for: named variables, given in the place of ``x0``.

A search works on flat vectors of float32 numbers. A real variable is its value, or the logarithm of
its value, an integer is itself, and a category is its index. Emitters keep whole numbers whole
(`gloam.emitters.Emitter`), so every vector that is evaluated or stored has values in the space.
"""

import dataclasses
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam._tools import checks
from gloam._tools.registry import register
from gloam._tools.trees import Tree

Rows = np.ndarray | Array
# float32 holds all whole numbers up to this one.
_LARGEST_INTEGER = 2**24 - 1
_MOST_CHOICES = 1000
_LONGEST_NAME = 120
# Columns of tables of elites that are no variables.
_RESERVED = ("cell", "objective", "measures", "solution")
_PLAIN = (bool, int, float, str, type(None))


@dataclasses.dataclass(frozen=True)
class Variable(ABC):
    """A named part of a solution: one value, or an array of them. Use one of the subclasses."""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(_shape_of(self))

    @property
    def num_values(self) -> int:
        """Number of different values; 0 if they are real numbers."""
        return 0

    @property
    def is_category(self) -> bool:
        """True if the values have no order."""
        return False

    @abstractmethod
    def box(self) -> tuple[float, float]:
        """Return the lowest and the highest number in a vector."""

    @abstractmethod
    def decoded(self, numbers: Rows) -> Rows:
        """Return the values of numbers in a vector."""

    @abstractmethod
    def encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return the numbers of values, after checking them."""

    @abstractmethod
    def first(self) -> Any:
        """Return the value at which a search starts, if none is given."""


@register
@checks.names_arguments
@dataclasses.dataclass(frozen=True)
class Real(Variable):
    """A real number between two bounds, or an array of them.

    Args:
        lower: Smallest value.
        upper: Largest value.
        log: Search on a logarithmic scale, for ranges over several decades.
        shape: Shape of an array of values; one number by default.
        start: Where the search starts: one number, or an array of this shape. By default the middle
            of the range, on its scale.
    """

    lower: float
    upper: float
    _: dataclasses.KW_ONLY
    log: bool = False
    shape: tuple[int, ...] = ()
    start: Any = None

    def __post_init__(self) -> None:
        fix = "Without bounds, give a flat vector as x0."
        for name in ("lower", "upper"):
            value = checks.number(name, getattr(self, name), fix=fix)
            at_most = f"a number between -{checks.LARGEST:g} and {checks.LARGEST:g}"
            checks.expect(abs(value) <= checks.LARGEST, name, at_most, value, "Scale the variable.")
            object.__setattr__(self, name, value)
        checks.instance("log", self.log, bool)
        got = f"{self.lower:g} and {self.upper:g}"
        if self.log:
            fix = "Without log=True it may be zero or less."
            checks.expect(self.lower > 0, "lower", "a number > 0 on a log scale", self.lower, fix)
        # In this order: numbers below zero have no logarithm.
        fits = self.lower < self.upper and operator.lt(*self.box())
        fix = "Exchange them, or move them apart."
        checks.expect(fits, "lower, upper", "lower < upper in float32", got, fix)
        _finish(self)

    def box(self) -> tuple[float, float]:
        """Return the bounds, or their logarithms."""
        # Inside of the given bounds, because float32 may round them outwards.
        low, high = _float32_inside(self.lower, self.upper)
        if self.log:
            low, high = _float32_inside(math.log(low), math.log(high))
        return low, high

    def decoded(self, numbers: Rows) -> Rows:
        """Return the numbers, or their exponentials."""
        if not self.log:
            return numbers
        low, high = _float32_inside(self.lower, self.upper)
        of = np if isinstance(numbers, np.ndarray) else jnp
        return of.clip(of.exp(numbers), np.float32(low), np.float32(high))

    def encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return the values, or their logarithms."""
        numbers = checks.real_array(name, values, "numbers").astype(np.float64)
        inside = (numbers >= self.lower) & (numbers <= self.upper)
        # A value of the space in float32 may lie outside by less than float32 can tell.
        low, high = np.float32(self.lower), np.float32(self.upper)
        inside |= (np.float32(numbers) >= low) & (np.float32(numbers) <= high)
        _all_inside(name, inside, numbers, f"numbers from {self.lower:g} to {self.upper:g}")
        numbers = np.log(numbers) if self.log else numbers
        return np.clip(numbers.astype(np.float32), *self.box())

    def first(self) -> float:
        """Return the middle of the range."""
        return math.sqrt(self.lower * self.upper) if self.log else (self.lower + self.upper) / 2


@register
@checks.names_arguments
@dataclasses.dataclass(frozen=True)
class Integer(Variable):
    """A whole number between two bounds, both of which it may take, or an array of them.

    Args:
        lower: Smallest value.
        upper: Largest value.
        shape: Shape of an array of values; one number by default.
        start: Where the search starts: one number, or an array of this shape. By default the middle
            of the range.
    """

    lower: int
    upper: int
    _: dataclasses.KW_ONLY
    shape: tuple[int, ...] = ()
    start: Any = None

    def __post_init__(self) -> None:
        most = _LARGEST_INTEGER
        fix = "For other numbers use gloam.Real, and round in your evaluation."
        for name in ("lower", "upper"):
            value = checks.integer(name, getattr(self, name), minimum=-most, maximum=most, fix=fix)
            object.__setattr__(self, name, value)
        got = f"{self.lower} and {self.upper}"
        fix = "A variable of one value is a constant: leave it out."
        checks.expect(self.lower < self.upper, "lower, upper", "lower < upper", got, fix)
        _finish(self)

    @property
    def num_values(self) -> int:
        """Number of different values."""
        return self.upper - self.lower + 1

    def box(self) -> tuple[float, float]:
        """Return bounds half a step beyond the range, so that all values have equal shares."""
        return self.lower - 0.5, self.upper + 0.5

    def decoded(self, numbers: Rows) -> Rows:
        """Return the numbers as int32."""
        of = np if isinstance(numbers, np.ndarray) else jnp
        return of.clip(of.rint(numbers), self.lower, self.upper).astype(np.int32)

    def encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return whole numbers as float32."""
        numbers = checks.real_array(name, values, "whole numbers").astype(np.float64)
        inside = (numbers == np.rint(numbers)) & (numbers >= self.lower) & (numbers <= self.upper)
        _all_inside(name, inside, numbers, f"whole numbers from {self.lower} to {self.upper}")
        return numbers.astype(np.float32)

    def first(self) -> int:
        """Return the middle of the range."""
        return (self.lower + self.upper) // 2


@register
@checks.names_arguments
@dataclasses.dataclass(frozen=True)
class Categorical(Variable):
    """One of several choices, or an array of them.

    In Python, ``evaluate`` gets the choices themselves. A function that JAX traces (`gloam.run`)
    gets their indices, because JAX has no texts.

    Args:
        choices: Texts, numbers, booleans or ``None``, all different.
        ordered: True if neighbours in the list are alike, such as ``["small", "medium", "large"]``.
        shape: Shape of an array of choices; one by default.
        start: The choice at which the search starts, or an array of them; the first by default.
    """

    choices: tuple[Any, ...]
    _: dataclasses.KW_ONLY
    ordered: bool = False
    shape: tuple[int, ...] = ()
    start: Any = None

    def __post_init__(self) -> None:
        fix = 'Give a list such as ["x", "y"].'
        is_array = isinstance(self.choices, np.ndarray) and self.choices.ndim == 1
        is_list = isinstance(self.choices, (list, tuple)) or is_array
        checks.expect(is_list, "choices", "a list of choices", checks.short(self.choices), fix)
        given: Any = self.choices
        choices = tuple(given.tolist() if isinstance(given, np.ndarray) else given)
        number = f"from 2 to {_MOST_CHOICES} choices"
        enough = 2 <= len(choices) <= _MOST_CHOICES
        checks.expect(enough, "choices", number, f"{len(choices)}", fix)
        for choice in choices:
            is_plain = isinstance(choice, _PLAIN) and choice == choice
            expected = "texts, numbers, booleans or None"
            fix = "Name the choices, and look the objects up in your evaluation."
            checks.expect(is_plain, "choices", expected, checks.short(choice), fix)
        twice = [choice for place, choice in enumerate(choices) if choice in choices[:place]]
        got = f"{checks.short(twice[0])} twice" if twice else ""
        checks.expect(not twice, "choices", "different choices", got, "Remove one of them.")
        checks.instance("ordered", self.ordered, bool)
        object.__setattr__(self, "choices", choices)
        _finish(self)

    @property
    def num_values(self) -> int:
        """Number of choices."""
        return len(self.choices)

    @property
    def is_category(self) -> bool:
        """True unless the choices have an order."""
        return not self.ordered

    def box(self) -> tuple[float, float]:
        """Return bounds of the indices, half a step beyond the first and the last."""
        return -0.5, len(self.choices) - 0.5

    def decoded(self, numbers: Rows) -> Rows:
        """Return the choices; their indices if JAX traces the function."""
        of = np if isinstance(numbers, np.ndarray) else jnp
        indices = of.clip(of.rint(numbers), 0, len(self.choices) - 1).astype(np.int32)
        return self._table[indices] if isinstance(indices, np.ndarray) else indices

    def encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return the indices of choices."""
        values = np.asarray(values)
        found = [self._index_of(value) for value in values.ravel().tolist()]
        inside = np.array([index is not None for index in found], bool)
        expected = f"one of {checks.short(list(self.choices))}"
        _all_inside(name, inside, values.ravel(), expected)
        return np.array(found, np.float32).reshape(values.shape)

    def first(self) -> Any:
        """Return the first choice."""
        return self.choices[0]

    def from_texts(self, values: np.ndarray) -> np.ndarray:
        """Return values with the choices in the place of their texts, as files may have them."""
        texts = {str(choice): choice for choice in self.choices}
        found = np.empty(values.size, object)
        found[:] = [
            value if value in self.choices else texts.get(str(value), value)
            for value in values.ravel().tolist()
        ]
        return found.reshape(values.shape)

    def _index_of(self, value: Any) -> int | None:
        return self.choices.index(value) if value in self.choices else None

    @cached_property
    def _table(self) -> np.ndarray:
        """The choices as an array; of objects if they have several types."""
        kinds = {type(choice) for choice in self.choices}
        if len(kinds) == 1 and kinds <= {bool, int, float, str}:
            return np.array(self.choices)
        table = np.empty(len(self.choices), object)
        table[:] = self.choices
        return table


class Discrete(NamedTuple):
    """The columns of a vector that hold whole numbers, for emitters."""

    lower: Float[np.ndarray, " sol"]
    """Smallest value; minus infinity for real numbers."""
    upper: Float[np.ndarray, " sol"]
    num_values: Int[np.ndarray, " sol"]
    """Number of values; 0 for real numbers."""
    is_category: Bool[np.ndarray, " sol"]
    """True for values without an order."""

    @property
    def is_discrete(self) -> Bool[np.ndarray, " sol"]:
        """True for columns of whole numbers."""
        return self.num_values > 0

    def columns(self, chosen: Int[np.ndarray, " n"]) -> "Discrete":
        """Return some of the columns."""
        return Discrete(*(part[chosen] for part in self))

    def snapped(self, vectors: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        """Return vectors with whole numbers in the columns that hold them."""
        whole = jnp.clip(jnp.rint(vectors), self.lower, self.upper)
        return jnp.where(self.is_discrete, whole, vectors)


# Files keep pairs in place of a dict, whose order JSON need not keep.
@register(build="of")
@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Space:
    """Named variables, given to an algorithm in the place of ``x0``.

    Starting solution, bounds and step size follow from it. ``evaluate`` gets a dict with an array
    for each variable, whose first axis is the batch; with ``per_solution=True`` a dict of values.

    Args:
        variables: `gloam.Real`, `gloam.Integer` and `gloam.Categorical` by name.

    Example:
        >>> import gloam
        >>> space = gloam.Space(
        ...     angle=gloam.Real(-1, 1),
        ...     rate=gloam.Real(1e-5, 1e-1, log=True),
        ...     layers=gloam.Integer(1, 9),
        ...     kind=gloam.Categorical(["x", "y"]),
        ... )
        >>> archive = gloam.GridArchive(shape=(10, 9), lower=(-1, 1), upper=(1, 9))
        >>> search = gloam.Search(gloam.DMS(archive, space), seed=1)
        >>> values = search.ask()
        >>> values["layers"].dtype, values["kind"].shape
        (dtype('int32'), (540,))
        >>> measures = np.stack([values["angle"], values["layers"]], axis=1)
        >>> search.tell(np.where(values["kind"] == "x", 1.0, 0.5), measures)
        >>> sorted(search.elites().best.values)
        ['angle', 'kind', 'layers', 'rate']
    """

    variables: tuple[tuple[str, Variable], ...]

    def __init__(self, **variables: Variable):
        fix = "For instance gloam.Space(angle=gloam.Real(-1, 1))."
        checks.expect(len(variables) > 0, "Space", "at least one variable", "none", fix)
        for name, variable in variables.items():
            is_name = name.strip() == name and 0 < len(name) <= _LONGEST_NAME and name.isprintable()
            expected = f"a text of 1 to {_LONGEST_NAME} printable characters"
            checks.expect(is_name, "name of a variable", expected, checks.short(name))
            is_free = name not in _RESERVED
            expected = "a name that tables of elites do not use"
            checks.expect(is_free, "name of a variable", expected, repr(name), "Choose another.")
            kinds = Real, Integer, Categorical
            checks.instance(name, variable, kinds, "Describe each variable by one of these.")
        object.__setattr__(self, "variables", tuple(variables.items()))
        names = [name for name, _ in self.places]
        twice = sorted({name for name in names if names.count(name) > 1})
        expected = "different names, also of the numbers in arrays"
        got = f"{twice[0]!r} twice" if twice else ""
        checks.expect(not twice, "Space", expected, got, "Rename one of the variables.")
        most = f"at most {checks.LARGEST_COUNT:,} numbers"
        checks.expect(self.size <= checks.LARGEST_COUNT, "Space", most, f"{self.size:,}")

    @classmethod
    def of(cls, variables: Sequence[tuple[str, Variable]]) -> "Space":
        """Return the space of pairs of names and variables."""
        pairs = isinstance(variables, (list, tuple)) and all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)
            for pair in variables
        )
        expected = "a list of pairs of names and variables"
        checks.expect(pairs, "variables", expected, checks.short(variables))
        return cls(**dict(variables))

    def __repr__(self) -> str:
        return f"Space({', '.join(f'{name}={one!r}' for name, one in self.variables)})"

    @property
    def size(self) -> int:
        """Number of numbers in a vector."""
        return sum(variable.size for _, variable in self.variables)

    @property
    def start(self) -> Float[np.ndarray, " sol"]:
        """The starting solution, as a vector."""
        return self.vectors({name: _start_of(one)[None] for name, one in self.variables})[0]

    @property
    def bounds(self) -> tuple[Float[np.ndarray, " sol"], Float[np.ndarray, " sol"]]:
        """Lower and upper bounds of vectors."""
        boxes = np.array([v.box() for _, v in self.variables for _ in range(v.size)], np.float32)
        return boxes[:, 0], boxes[:, 1]

    @cached_property
    def discrete(self) -> Discrete | None:
        """The columns of whole numbers, or ``None`` if all variables are real."""
        columns = [variable for _, variable in self.variables for _ in range(variable.size)]
        number = np.array([column.num_values for column in columns], np.int32)
        if not number.any():
            return None
        lower, upper = self.bounds
        half = np.where(number > 0, 0.5, np.inf).astype(np.float32)
        is_category = np.array([column.is_category for column in columns])
        return Discrete(lower + half, upper - half, number, is_category)

    @property
    def places(self) -> list[tuple[str, int]]:
        """Name of every column in a table, and its place in the vector."""
        found = []
        for name, variable in self.variables:
            shape = _shape_of(variable)
            names = [f"{name}_{i}" for i in range(variable.size)] if shape else [name]
            found += [(own, len(found) + place) for place, own in enumerate(names)]
        return found

    def values(self, vectors: Rows) -> dict[str, Any]:
        """Return the values of ``(batch, sol)`` vectors: an array ``(batch, *shape)`` by name."""
        return {
            name: variable.decoded(part).reshape(-1, *_shape_of(variable))
            for name, variable, part in self._split(vectors)
        }

    def value(self, vector: Float[np.ndarray, " sol"]) -> dict[str, Any]:
        """Return the values of one vector: Python's own numbers and texts, or arrays."""
        found = self.values(np.asarray(vector)[None])
        return {
            name: rows[0] if rows.ndim > 1 else rows.tolist()[0] for name, rows in found.items()
        }

    def vectors(self, values: Mapping[str, Any]) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of values, after checking that they are in the space.

        Args:
            values: An array ``(batch, *shape)`` for each variable.
        """
        checks.instance("values", values, Mapping, "Give a dict with an array for each variable.")
        wanted = dict(self.variables)
        unknown, missing = sorted(set(values) - set(wanted)), sorted(set(wanted) - set(values))
        got = ", ".join([f"unknown {n!r}" for n in unknown] + [f"no {n!r}" for n in missing])
        expected = f"the variables {', '.join(wanted)}"
        checks.expect(not got, "values", expected, got, "Rename, add or remove variables.")
        columns, number = [], None
        for name, variable in self.variables:
            rows, shape = _as_rows(values[name]), _shape_of(variable)
            number = len(rows) if number is None and rows.ndim else number
            expected = f"shape {(number, *shape)}"
            fits = rows.shape == (number, *shape)
            checks.expect(fits, name, expected, f"shape {rows.shape}")
            columns.append(variable.encoded(name, rows).reshape(len(rows), variable.size))
        return np.concatenate(columns, axis=1).astype(np.float32)

    def vector(self, values: Mapping[str, Any]) -> Float[np.ndarray, " sol"]:
        """Return the vector of one solution: a value, or an array, for each variable."""
        checks.instance("values", values, Mapping, "Give a dict with a value for each variable.")
        return self.vectors({name: _as_rows([value]) for name, value in values.items()})[0]

    def columns(self, vectors: Float[np.ndarray, "batch sol"]) -> dict[str, np.ndarray]:
        """Return the columns of a table; arrays are flattened into ``name_0``, ``name_1``, ..."""
        found = {}
        for name, rows in self.values(np.asarray(vectors)).items():
            flat = rows.reshape(len(rows), -1)
            names = [name] if rows.ndim == 1 else [f"{name}_{i}" for i in range(flat.shape[1])]
            found |= dict(zip(names, flat.T, strict=True))
        return found

    def texts(self, vectors: Float[np.ndarray, "batch sol"]) -> list[dict[str, str]]:
        """Return the columns of a table as short texts, a dict for each row."""
        columns = {name: map(_text, rows.tolist()) for name, rows in self.columns(vectors).items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def numbers(
        self, vectors: Float[np.ndarray, "batch sol"]
    ) -> tuple[Float[np.ndarray, "batch sol"], list[list[str] | None]]:
        """Return the columns of a table as numbers, and the texts of choices.

        Categories are indices of their choices. Columns of other variables have no choices.
        """
        columns, numbers, choices = self.columns(vectors), np.array(vectors), []
        kinds = [variable for _, variable in self.variables for _ in range(variable.size)]
        for (name, place), variable in zip(self.places, kinds, strict=True):
            is_choice = isinstance(variable, Categorical)
            choices.append([_text(choice) for choice in variable.choices] if is_choice else None)
            if not is_choice:
                numbers[:, place] = columns[name]
        return numbers, choices

    def from_columns(self, table: Mapping[str, np.ndarray]) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of a table with the columns of `columns`."""
        values: dict[str, Any] = {}
        for name, variable in self.variables:
            shape = _shape_of(variable)
            names = [f"{name}_{i}" for i in range(variable.size)] if shape else [name]
            missing = [own for own in names if own not in table]
            got = f"no column '{missing[0]}'" if missing else ""
            expected = f"columns {', '.join(own for own, _ in self.places[:8])}"
            checks.expect(not missing, "table", expected, got, "Add or rename columns.")
            rows = np.stack([np.asarray(table[own]) for own in names], axis=1)
            rows = variable.from_texts(rows) if isinstance(variable, Categorical) else rows
            values[name] = rows.reshape(-1, *shape)
        return self.vectors(values)

    def _split(self, vectors: Rows) -> list[tuple[str, Variable, Rows]]:
        parts, start, got = [], 0, np.shape(vectors)
        expected = f"shape (batch, {self.size}), a row for each solution"
        checks.expect(len(got) == 2 and got[1] == self.size, "vectors", expected, f"shape {got}")
        for name, variable in self.variables:
            parts.append((name, variable, vectors[:, start : start + variable.size]))
            start += variable.size
        return parts


Form = Space | Tree
"""What a solution stands for."""


def form_of(x0: Any) -> tuple[Form | None, Any]:
    """Return the form of an ``x0``, and its flat vector; ``None`` for what is a vector already."""
    if isinstance(x0, Space):
        return x0, x0.start
    has_variables = any(isinstance(leaf, Variable) for leaf in jax.tree.leaves(x0))
    fix = "Name the variables: gloam.Space(angle=gloam.Real(-1, 1)), or gloam.Space(**variables)."
    got = f"{type(x0).__name__} {checks.short(x0)}"
    checks.expect(not has_variables, "x0", "a Space, or a vector of numbers", got, fix)
    is_leaf = jax.tree_util.all_leaves([x0]) or x0 is None
    is_list = type(x0) in (list, tuple) and not any(map(_is_array, jax.tree.leaves(x0)))
    if is_leaf or is_list:
        return None, x0
    tree = Tree(x0)
    return tree, tree.vector(x0)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shape_of(variable: Any) -> tuple[int, ...]:
    return variable.shape


def _finish(variable: Any) -> None:
    """Check shape and start of a variable, which are common to all kinds."""
    shape: Any = variable.shape
    fix = "Give a shape such as (10,)."
    shape = checks.integers("shape", shape, minimum=1, fix=fix)
    object.__setattr__(variable, "shape", shape)
    most = f"at most {checks.LARGEST_COUNT:,} values"
    checks.expect(math.prod(shape) <= checks.LARGEST_COUNT, "shape", most, shape)
    if variable.start is not None:
        given = _as_rows(variable.start)
        expected = f"one value, or an array of shape {shape}"
        checks.expect(given.shape in ((), shape), "start", expected, f"shape {given.shape}")
        variable.encoded("start", given)
        # Plain values, so that variables can be compared and written to files.
        plain = given.tolist() if given.ndim == 0 else tuple(given.ravel().tolist())
        object.__setattr__(variable, "start", plain)


def _start_of(variable: Any) -> np.ndarray:
    start = _as_rows(variable.first() if variable.start is None else variable.start)
    return start.reshape(variable.shape) if start.ndim else np.broadcast_to(start, variable.shape)


def _as_rows(values: Any) -> np.ndarray:
    """Return values as an array; texts, numbers and ``None`` together as objects."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    if hasattr(values, "dtype"):
        return np.asarray(values)
    if isinstance(values, (list, tuple)) and len(values) == 1 and hasattr(values[0], "shape"):
        return np.asarray(values[0])[None]
    try:
        rows = np.asarray(values, object)
    except ValueError:  # rows of different lengths
        rows = np.empty(0, object)
    kinds = {type(value) for value in rows.ravel().tolist()}
    is_plain = len(kinds) == 1 and not kinds <= {type(None), list, tuple}
    return np.asarray(values) if is_plain else rows


def _all_inside(name: str, inside: np.ndarray, values: np.ndarray, expected: str) -> None:
    if not np.all(inside):
        got = values.ravel().tolist()[np.flatnonzero(~np.ravel(inside))[0]]
        number = int(np.sum(~inside))
        rest = f" and {number - 1} other values" if number > 1 else ""
        checks.expect(False, name, expected, f"{checks.short(got)}{rest}", "Change the space.")


def _float32_inside(lower: float, upper: float) -> tuple[float, float]:
    """Return the smallest and the largest float32 number between two numbers."""
    low, high = np.float32(lower), np.float32(upper)
    if float(low) < lower:
        low = np.nextafter(low, np.float32(np.inf))
    if float(high) > upper:
        high = np.nextafter(high, np.float32(-np.inf))
    return float(low), float(high)


def _is_array(leaf: Any) -> bool:
    """Whether a leaf makes a list a tree instead of a vector."""
    return getattr(leaf, "ndim", 0) > 0
