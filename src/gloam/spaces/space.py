"""What a solution stands for: named variables, or a tree, given in the place of ``x0``.

A search works on flat vectors of float32 numbers. A real variable is its value, or the logarithm of
its value, an integer is itself, and a category is its index. Emitters keep whole numbers whole
(`gloam.emitters.Emitter`), so every vector that is evaluated or stored has values in the space.
"""

import dataclasses
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
from gloam.spaces.variables import (
    Categorical,
    Integer,
    Real,
    Rows,
    Variable,
    as_rows,
    shape_of,
    start_of,
)

_LONGEST_NAME = 120
# Columns of tables of elites that are no variables.
_RESERVED = ("cell", "objective", "measures", "solution")


class Discrete(NamedTuple):
    """The columns of a vector that hold whole numbers, for emitters."""

    lower: Float[np.ndarray, " sol"]
    """Smallest value; minus infinity for real numbers."""
    upper: Float[np.ndarray, " sol"]
    num_values: Int[np.ndarray, " sol"]
    """Number of values; 0 for real numbers."""
    is_category: Bool[np.ndarray, " sol"]
    """True for values without an order."""
    sequence: Int[np.ndarray, " sol"]
    """Number of the sequence of each column, from 1; 0 for columns that are in none."""
    padding: Int[np.ndarray, " sol"]
    """Index of the choice that fills the end of the sequence; -1 for columns that are in none."""

    @property
    def is_discrete(self) -> Bool[np.ndarray, " sol"]:
        """True for columns of whole numbers."""
        return self.num_values > 0

    def columns(self, chosen: Int[np.ndarray, " n"]) -> "Discrete":
        """Return some of the columns."""
        return Discrete(*(field[chosen] for field in self))

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
        repeated = sorted({name for name in names if names.count(name) > 1})
        expected = "different names, also of the numbers in arrays"
        got = f"{repeated[0]!r} twice" if repeated else ""
        checks.expect(not repeated, "Space", expected, got, "Rename one of the variables.")
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
        return f"Space({', '.join(f'{name}={variable!r}' for name, variable in self.variables)})"

    @property
    def size(self) -> int:
        """Number of numbers in a vector."""
        return sum(variable.size for _, variable in self.variables)

    @property
    def start(self) -> Float[np.ndarray, " sol"]:
        """The starting solution, as a vector."""
        starts = {name: start_of(variable)[None] for name, variable in self.variables}
        return self.vectors(starts)[0]

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
        index, padding = np.array(
            [(i, v.padding_index) for i, (_, v) in enumerate(self.variables) for _ in range(v.size)]
        ).T
        sequence = np.where(padding >= 0, index + 1, 0)
        return Discrete(lower + half, upper - half, number, is_category, sequence, padding)

    @property
    def places(self) -> list[tuple[str, int]]:
        """Name of every column in a table, and its index in the vector."""
        names = [name for pair in self.variables for name in _column_names(*pair)]
        return [(name, index) for index, name in enumerate(names)]

    def values(self, vectors: Rows) -> dict[str, Any]:
        """Return the values of ``(batch, sol)`` vectors: an array ``(batch, *shape)`` by name."""
        return {
            name: variable.decoded(block).reshape(-1, *shape_of(variable))
            for name, variable, block in self._split(vectors)
        }

    def value(self, vector: Float[np.ndarray, " sol"]) -> dict[str, Any]:
        """Return the values of one vector: Python's own numbers and texts, or arrays."""
        values = self.values(np.asarray(vector)[None])
        return {
            name: rows[0] if rows.ndim > 1 else rows.tolist()[0] for name, rows in values.items()
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
            rows, shape = as_rows(values[name]), shape_of(variable)
            number = len(rows) if number is None and rows.ndim else number
            expected = f"shape {(number, *shape)}"
            fits = rows.shape == (number, *shape)
            checks.expect(fits, name, expected, f"shape {rows.shape}")
            columns.append(variable.encoded(name, rows).reshape(len(rows), variable.size))
        return np.concatenate(columns, axis=1).astype(np.float32)

    def vector(self, values: Mapping[str, Any]) -> Float[np.ndarray, " sol"]:
        """Return the vector of one solution: a value, or an array, for each variable."""
        checks.instance("values", values, Mapping, "Give a dict with a value for each variable.")
        return self.vectors({name: as_rows([value]) for name, value in values.items()})[0]

    def columns(self, vectors: Float[np.ndarray, "batch sol"]) -> dict[str, np.ndarray]:
        """Return the columns of a table; arrays are flattened into ``name_0``, ``name_1``, ..."""
        values = self.values(np.asarray(vectors))
        columns: dict[str, np.ndarray] = {}
        for name, variable in self.variables:
            flat = values[name].reshape(len(values[name]), -1)
            columns |= dict(zip(_column_names(name, variable), flat.T, strict=True))
        return columns

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
        for (name, index), variable in zip(self.places, kinds, strict=True):
            is_choice = isinstance(variable, Categorical)
            choices.append([_text(choice) for choice in variable.choices] if is_choice else None)
            if not is_choice:
                numbers[:, index] = columns[name]
        return numbers, choices

    def from_columns(self, table: Mapping[str, np.ndarray]) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of a table with the columns of `columns`."""
        values: dict[str, Any] = {}
        for name, variable in self.variables:
            columns = _column_names(name, variable)
            missing = [column for column in columns if column not in table]
            got = f"no column '{missing[0]}'" if missing else ""
            expected = f"columns {', '.join(column for column, _ in self.places[:8])}"
            checks.expect(not missing, "table", expected, got, "Add or rename columns.")
            rows = np.stack([np.asarray(table[column]) for column in columns], axis=1)
            rows = variable.from_texts(rows) if isinstance(variable, Categorical) else rows
            values[name] = rows.reshape(-1, *shape_of(variable))
        return self.vectors(values)

    def _split(self, vectors: Rows) -> list[tuple[str, Variable, Rows]]:
        blocks, start, got = [], 0, np.shape(vectors)
        expected = f"shape (batch, {self.size}), a row for each solution"
        checks.expect(len(got) == 2 and got[1] == self.size, "vectors", expected, f"shape {got}")
        for name, variable in self.variables:
            blocks.append((name, variable, vectors[:, start : start + variable.size]))
            start += variable.size
        return blocks


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


def _column_names(name: str, variable: Variable) -> list[str]:
    """Return the name of a variable, or ``name_0``, ``name_1``, ... for an array."""
    return [f"{name}_{i}" for i in range(variable.size)] if shape_of(variable) else [name]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_array(leaf: Any) -> bool:
    """Whether a leaf makes a list a tree instead of a vector."""
    return getattr(leaf, "ndim", 0) > 0
