"""Variables of a space: how their values become numbers in a vector, and back."""

import dataclasses
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gloam._tools import checks
from gloam._tools.registry import register

Rows = np.ndarray | Array
# float32 holds all whole numbers up to this one.
_LARGEST_INTEGER = 2**24 - 1
_MOST_CHOICES = 1000
_PLAIN = (bool, int, float, str, type(None))


@dataclasses.dataclass(frozen=True)
class Variable(ABC):
    """A named part of a solution: one value, or an array of them. Use one of the subclasses."""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(shape_of(self))

    @property
    def num_values(self) -> int:
        """Number of different values; 0 if they are real numbers."""
        return 0

    @property
    def is_category(self) -> bool:
        """True if the values have no order."""
        return False

    @property
    def padding_index(self) -> int:
        """Index of the choice that fills the end of a sequence; -1 if it is none."""
        return -1

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
        when: The condition under which the variable matters: values of other variables of the
            space, ``{"model": "svm"}`` or ``{"model": ("svm", "forest")}``; always, by default.
    """

    lower: float
    upper: float
    _: dataclasses.KW_ONLY
    log: bool = False
    shape: tuple[int, ...] = ()
    start: Any = None
    when: Any = None

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
        when: The condition under which the variable matters, as for `gloam.Real`.
    """

    lower: int
    upper: int
    _: dataclasses.KW_ONLY
    shape: tuple[int, ...] = ()
    start: Any = None
    when: Any = None

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
    gets their indices, because JAX has no string arrays.

    Args:
        choices: Texts, numbers, booleans or ``None``, all different.
        ordered: True if neighbors in the list are alike, such as ``["small", "medium", "large"]``.
        shape: Shape of an array of choices; one by default.
        start: The choice at which the search starts, or an array of them; the first by default.
        when: The condition under which the variable matters, as for `gloam.Real`.
        padding: The choice that fills the end of a sequence, such as ``"[nop]"``. It makes an array
            with one axis a sequence of any length: emitters that vary elites insert, remove and
            replace choices, and join the parts of two sequences.
    """

    choices: tuple[Any, ...]
    _: dataclasses.KW_ONLY
    ordered: bool = False
    shape: tuple[int, ...] = ()
    start: Any = None
    when: Any = None
    padding: Any = None

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
        repeated = [choice for i, choice in enumerate(choices) if choice in choices[:i]]
        got = f"{checks.short(repeated[0])} twice" if repeated else ""
        checks.expect(not repeated, "choices", "different choices", got, "Remove one of them.")
        checks.instance("ordered", self.ordered, bool)
        object.__setattr__(self, "choices", choices)
        _finish(self)
        if self.padding is not None:
            expected, got = f"one of {checks.short(list(choices))}", checks.short(self.padding)
            checks.expect(self.padding in choices, "padding", expected, got)
            fix = "Give shape=(longest,), and leave ordered out."
            is_sequence = len(self.shape) == 1 and not self.ordered
            expected = "choices without an order, and a shape of one number"
            got = f"ordered={self.ordered}, shape={self.shape}"
            checks.expect(is_sequence, "padding", expected, got, fix)

    @property
    def num_values(self) -> int:
        """Number of choices."""
        return len(self.choices)

    @property
    def is_category(self) -> bool:
        """True unless the choices have an order."""
        return not self.ordered

    @property
    def padding_index(self) -> int:
        """Index of the choice that fills the end of a sequence; -1 if it is none."""
        return -1 if self.padding is None else self.choices.index(self.padding)

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
        indices = [self._index_of(value) for value in values.ravel().tolist()]
        inside = np.array([index is not None for index in indices], bool)
        expected = f"one of {checks.short(list(self.choices))}"
        _all_inside(name, inside, values.ravel(), expected)
        return np.array(indices, np.float32).reshape(values.shape)

    def first(self) -> Any:
        """Return the first choice."""
        return self.choices[0]

    def from_texts(self, values: np.ndarray) -> np.ndarray:
        """Replace the texts of choices, which files may have, by the choices.

        An empty field (NaN) is the choice ``None``, if there is one.
        """
        texts = {str(choice): choice for choice in self.choices}
        texts |= {"nan": None} if None in self.choices and "nan" not in texts else {}
        choices = np.empty(values.size, object)
        choices[:] = [
            value if value in self.choices else texts.get(str(value), value)
            for value in values.ravel().tolist()
        ]
        return choices.reshape(values.shape)

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


def shape_of(variable: Any) -> tuple[int, ...]:
    """Return the shape of a variable's values, which every kind declares as a field."""
    return variable.shape


def when_of(variable: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the condition of a variable: names, and the values that each of them may have."""
    return variable.when or ()


def _finish(variable: Any) -> None:
    """Check shape, start and condition of a variable, which are common to all kinds."""
    object.__setattr__(variable, "when", _checked_when(variable.when))
    shape: Any = variable.shape
    fix = "Give a shape such as (10,)."
    shape = checks.integers("shape", shape, minimum=1, fix=fix)
    object.__setattr__(variable, "shape", shape)
    most = f"at most {checks.LARGEST_COUNT:,} values"
    checks.expect(math.prod(shape) <= checks.LARGEST_COUNT, "shape", most, shape)
    if variable.start is not None:
        given = as_rows(variable.start)
        expected = f"one value, or an array of shape {shape}"
        checks.expect(given.shape in ((), shape), "start", expected, f"shape {given.shape}")
        variable.encoded("start", given)
        # Plain values, so that variables can be compared and written to files.
        plain = given.tolist() if given.ndim == 0 else tuple(given.ravel().tolist())
        object.__setattr__(variable, "start", plain)


def _checked_when(when: Any) -> tuple[tuple[str, tuple[Any, ...]], ...] | None:
    """Return a condition as pairs, which can be compared and written to files."""
    if when is None:
        return None
    expected = "a dict of names of variables and their values"
    fix = 'For instance when={"model": "svm"}, or {"model": ("svm", "forest")}.'
    pairs = tuple(when.items()) if isinstance(when, Mapping) else when
    are_pairs = isinstance(pairs, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    )
    fits = are_pairs and 0 < len(pairs) == len(dict(pairs))
    checks.expect(fits, "when", expected, checks.short(when), fix)
    conditions = []
    for name, given in pairs:
        several = given if isinstance(given, (list, tuple, range)) else (given,)
        number = f"from 1 to {_MOST_CHOICES} values"
        enough = 1 <= len(several) <= _MOST_CHOICES
        checks.expect(enough, f"when: {name!r}", number, f"{len(several)}", fix)
        values = tuple(v.item() if isinstance(v, np.generic) else v for v in several)
        for value in values:
            is_plain = isinstance(value, _PLAIN)
            expected = "texts, numbers, booleans or None"
            checks.expect(is_plain, f"when: {name!r}", expected, checks.short(value), fix)
        conditions.append((name, values))
    return tuple(conditions)


def start_of(variable: Any) -> np.ndarray:
    """Return the starting values of a variable, in its shape."""
    start = as_rows(variable.first() if variable.start is None else variable.start)
    return start.reshape(variable.shape) if start.ndim else np.broadcast_to(start, variable.shape)


def as_rows(values: Any) -> np.ndarray:
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
        others = f" and {number - 1} other values" if number > 1 else ""
        checks.expect(False, name, expected, f"{checks.short(got)}{others}", "Change the space.")


def _float32_inside(lower: float, upper: float) -> tuple[float, float]:
    """Return the smallest and the largest float32 number between two numbers."""
    low, high = np.float32(lower), np.float32(upper)
    if float(low) < lower:
        low = np.nextafter(low, np.float32(np.inf))
    if float(high) > upper:
        high = np.nextafter(high, np.float32(-np.inf))
    return float(low), float(high)
