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
from gloam.spaces.conditions import Conditions
from gloam.spaces.payloads import Payloads
from gloam.spaces.variables import (
    Categorical,
    Integer,
    Real,
    Rows,
    Variable,
    as_rows,
    shape_of,
    start_of,
    when_of,
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

    Variables with a condition (``when=``) that does not hold are inactive. They are not in the dict
    of a solution, and empty in tables. Arrays of a batch have their starting values, and `active`
    tells them from others.

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
        _ = self._conditions  # which checks them

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
        """Return the values of one vector: Python's own numbers and texts, or arrays.

        Inactive variables are left out.
        """
        vectors = np.asarray(vector)[None]
        masks = self._masks(vectors)
        return {
            name: rows[0] if rows.ndim > 1 else rows.tolist()[0]
            for name, rows in self.values(vectors).items()
            if masks[name][0]
        }

    def active(self, values: Mapping[str, Any]) -> dict[str, Bool[Rows, "*batch"]]:
        """Return for each variable a mask of the solutions in which it is active.

        Args:
            values: Values as ``evaluate`` gets them, of a batch or of one solution: choices in
                NumPy, and indices of choices in JAX.

        Example:
            >>> import gloam
            >>> model = gloam.Categorical(["forest", "svm"])
            >>> space = gloam.Space(model=model, C=gloam.Real(1, 9, when={"model": "svm"}))
            >>> values = {"model": np.array(["svm", "forest"]), "C": np.array([2, 5])}
            >>> space.active(values)["C"].tolist()
            [True, False]
        """
        fix = "Give the values that evaluate gets."
        checks.instance("values", values, Mapping, fix)
        first, variable = self.variables[0]
        for name in (first, *self._conditions.named):
            checks.expect(name in values, "values", f"the variable {name!r}", "none", fix)
        shape = np.shape(values[first])
        shape = shape[: len(shape) - len(shape_of(variable))]
        of = self._conditions.numbers_of
        numbers = {name: of(name, values[name]) for name in self._conditions.named}
        return self._conditions.masks(numbers, shape)

    def active_numbers(self, vectors: Float[Rows, "*n sol"]) -> Bool[Rows, "*n sol"]:
        """Return a mask of the numbers in vectors that belong to active variables."""
        of = np if isinstance(vectors, np.ndarray) else jnp
        masks = of.stack(list(self._masks(vectors).values()), axis=-1)
        sizes = [variable.size for _, variable in self.variables]
        return masks[..., np.repeat(np.arange(len(sizes)), sizes)]

    def canonical(self, vectors: Float[Rows, "*n sol"]) -> Float[Rows, "*n sol"]:
        """Return vectors with inactive variables at their starting values.

        Solutions that differ in inactive variables alone have the same canonical vector.
        """
        if not self.is_conditional:
            return vectors
        of = np if isinstance(vectors, np.ndarray) else jnp
        return of.where(self.active_numbers(vectors), vectors, self.start)

    def vectors(self, values: Mapping[str, Any]) -> Float[np.ndarray, "batch sol"]:
        """Return the canonical vectors of values, after checking that they are in the space.

        Args:
            values: An array ``(batch, *shape)`` for each variable. Values of inactive variables are
                not used, and variables that are inactive in all solutions may be left out.
        """
        return self._vectors(values)

    def _vectors(
        self, values: Mapping[str, Any], *, has_texts: bool = False
    ) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of values; ``has_texts`` if choices may be texts, as in files."""
        checks.instance("values", values, Mapping, "Give a dict with an array for each variable.")
        wanted, fix = dict(self.variables), "Rename, add or remove variables."
        needed = {name for name, variable in self.variables if not when_of(variable)}
        unknown, missing = sorted(set(values) - set(wanted)), sorted(needed - set(values))
        got = ", ".join([f"unknown {n!r}" for n in unknown] + [f"no {n!r}" for n in missing])
        expected = f"the variables {', '.join(wanted)}"
        checks.expect(not got, "values", expected, got, fix)
        blocks: dict[str, np.ndarray] = {}
        numbers: dict[str, np.ndarray] = {}
        masks: dict[str, Rows] = {}
        # The first one in this order has no condition.
        first = as_rows(values[self._conditions.order[0]])
        number = len(first) if first.ndim else 0
        for name in self._conditions.order:
            variable, shape = wanted[name], shape_of(wanted[name])
            masks[name] = self._conditions.is_active(name, numbers, masks)
            mask = np.broadcast_to(masks[name], (number,))
            block = np.tile(_encoded(name, variable, start_of(variable)[None]), (number, 1))
            if name in values:
                rows = as_rows(values[name])
                expected = f"shape {(number, *shape)}"
                fits = rows.shape == (number, *shape)
                checks.expect(fits, name, expected, f"shape {rows.shape}")
                rows = rows[mask]
                if when_of(variable) and rows.dtype == object:
                    rows = as_rows(rows.tolist())  # without the empty fields of other rows
                if len(rows):
                    block[mask] = _encoded(name, variable, rows, has_texts=has_texts)
            else:
                expected = f"a value, because {self._conditions.described(name)}"
                checks.expect(not mask.any(), name, expected, "none", "Add its value.")
            blocks[name], numbers[name] = block, block[:, 0]
        return np.concatenate([blocks[name] for name in wanted], axis=1).astype(np.float32)

    def vector(self, values: Mapping[str, Any]) -> Float[np.ndarray, " sol"]:
        """Return the vector of one solution: a value, or an array, for each active variable."""
        checks.instance("values", values, Mapping, "Give a dict with a value for each variable.")
        return self.vectors({name: as_rows([value]) for name, value in values.items()})[0]

    def columns(self, vectors: Float[np.ndarray, "batch sol"]) -> dict[str, np.ndarray]:
        """Return the columns of a table; arrays are flattened into ``name_0``, ``name_1``, ...

        Inactive variables are empty: NaN in columns of numbers, ``None`` in others.
        """
        columns = {}
        for name, variable, rows, mask in self._table(vectors):
            if when_of(variable):
                is_choice = isinstance(variable, Categorical)
                rows = rows.astype(object if is_choice else np.result_type(rows, np.float32))
                rows[~mask] = None if is_choice else np.nan
            columns[name] = rows
        return columns

    def texts(self, vectors: Float[np.ndarray, "batch sol"]) -> list[dict[str, str]]:
        """Return the columns of a table as short texts, a dict for each row.

        Texts of inactive variables are empty.
        """
        columns = {
            name: [
                _text(row) if is_active else ""
                for row, is_active in zip(rows.tolist(), mask, strict=True)
            ]
            for name, _, rows, mask in self._table(vectors)
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def numbers(
        self, vectors: Float[np.ndarray, "batch sol"]
    ) -> tuple[Float[np.ndarray, "batch sol"], list[list[str] | None]]:
        """Return the columns of a table as numbers, and the texts of choices.

        Categories are indices of their choices. Columns of other variables have no choices. Numbers
        of inactive variables are NaN.
        """
        numbers, choices = np.array(vectors), []
        for index, (_, variable, rows, mask) in enumerate(self._table(vectors)):
            is_choice = isinstance(variable, Categorical)
            choices.append([_text(choice) for choice in variable.choices] if is_choice else None)
            if not is_choice:
                numbers[:, index] = rows
            numbers[~mask, index] = np.nan
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
            values[name] = rows.reshape(-1, *shape_of(variable))
        return self._vectors(values, has_texts=True)

    @property
    def is_conditional(self) -> bool:
        """True if variables have conditions."""
        return bool(self._conditions.named)

    @cached_property
    def _conditions(self) -> Conditions:
        return Conditions(dict(self.variables))

    @cached_property
    def _named_columns(self) -> dict[str, int]:
        """Columns of the variables on which others depend."""
        columns = dict(self.places)
        return {name: columns[name] for name in self._conditions.named}

    def _masks(self, vectors: Float[Rows, "*n sol"]) -> dict[str, Bool[Rows, "*n"]]:
        """Return the mask of each variable for vectors, see `active`."""
        of, numbers = np if isinstance(vectors, np.ndarray) else jnp, {}
        for name, column in self._named_columns.items():
            low, high = self._conditions.variables[name].box()
            numbers[name] = of.clip(of.rint(vectors[..., column]), low + 0.5, high - 0.5)
        return self._conditions.masks(numbers, vectors.shape[:-1])

    def _table(
        self, vectors: Float[np.ndarray, "batch sol"]
    ) -> list[tuple[str, Variable, np.ndarray, Bool[np.ndarray, " batch"]]]:
        """Return name, variable, values and mask of every column of a table."""
        vectors = np.asarray(vectors)
        values, masks = self.values(vectors), self._masks(vectors)
        return [
            (column, variable, rows, np.asarray(masks[name]))
            for name, variable in self.variables
            for column, rows in zip(
                _column_names(name, variable),
                values[name].reshape(len(vectors), variable.size).T,
                strict=True,
            )
        ]

    def _split(self, vectors: Rows) -> list[tuple[str, Variable, Rows]]:
        blocks, start, got = [], 0, np.shape(vectors)
        expected = f"shape (batch, {self.size}), a row for each solution"
        checks.expect(len(got) == 2 and got[1] == self.size, "vectors", expected, f"shape {got}")
        for name, variable in self.variables:
            blocks.append((name, variable, vectors[:, start : start + variable.size]))
            start += variable.size
        return blocks


Form = Space | Tree | Payloads
"""What a solution stands for."""


def form_of(x0: Any) -> tuple[Form | None, Any]:
    """Return the form of an ``x0``, and its flat vector; ``None`` for what is a vector already."""
    if isinstance(x0, Space):
        return x0, x0.start
    if any(isinstance(leaf, Variable) for leaf in jax.tree.leaves(x0)):
        fix = (
            "Name the variables: gloam.Space(angle=gloam.Real(-1, 1)), or gloam.Space(**variables)."
        )
        got = f"{type(x0).__name__} {checks.short(x0)}"
        checks.expect(False, "x0", "a Space, or a vector of numbers", got, fix)
    is_leaf = jax.tree_util.all_leaves([x0]) or x0 is None
    is_list = type(x0) in (list, tuple) and not any(map(_is_array, jax.tree.leaves(x0)))
    if is_leaf or is_list:
        return None, x0
    tree = Tree(x0)
    return tree, tree.vector(x0)


def _encoded(
    name: str, variable: Variable, rows: np.ndarray, *, has_texts: bool = False
) -> Float[np.ndarray, "batch numbers"]:
    """Return the numbers of a variable's values; ``has_texts`` if choices may be texts."""
    if has_texts and isinstance(variable, Categorical):
        rows = variable.from_texts(rows)
    return variable.encoded(name, rows).reshape(len(rows), variable.size)


def _column_names(name: str, variable: Variable) -> list[str]:
    """Return the name of a variable, or ``name_0``, ``name_1``, ... for an array."""
    return [f"{name}_{i}" for i in range(variable.size)] if shape_of(variable) else [name]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_array(leaf: Any) -> bool:
    """Whether a leaf makes a list a tree instead of a vector."""
    return getattr(leaf, "ndim", 0) > 0
