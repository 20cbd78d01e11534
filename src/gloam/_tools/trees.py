"""Pytrees of arrays as solutions, such as the parameters of a network."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.registry import register

Rows = np.ndarray | Array


@register(
    build="from_json",
    values={
        "leaves": lambda tree: tree.to_json()["leaves"],
        "skeleton": lambda tree: tree.to_json()["skeleton"],
    },
)
@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class Tree:
    """A pytree of arrays, such as the parameters of a network, as the form of solutions.

    Algorithms make it from an ``x0`` that is a pytree. Arrays are flattened and joined in the order
    of `jax.tree.leaves`. Files keep the structure of dicts, lists and tuples. Of other nodes, such
    as Equinox modules, they keep the paths and shapes of the arrays, and a tree that was read from
    a file is a dict of arrays by path.

    Args:
        like: A pytree of arrays of real numbers, or of their shapes.
    """

    paths: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    structure: Any
    """Structure of the tree, or ``None`` for a dict of arrays by path."""

    def __init__(self, like: Any):
        leaves, structure = jax.tree_util.tree_flatten_with_path(like)
        fix = "Split other leaves off: eqx.partition(model, eqx.is_inexact_array)."
        checks.expect(len(leaves) > 0, "x0", "a pytree with arrays", checks.short(like), fix)
        for path, leaf in leaves:
            name = f"x0{jax.tree_util.keystr(path)}"
            has_dtype = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
            is_real = has_dtype and jnp.issubdtype(leaf.dtype, jnp.floating)
            got = f"{leaf.dtype}" if has_dtype else checks.short(leaf)
            checks.expect(is_real, name, "an array of floats", got, fix)
            checks.expect(math.prod(leaf.shape) > 0, name, "at least one number", "none", fix)
        arrays = [leaf for _, leaf in leaves]
        object.__setattr__(self, "paths", tuple(jax.tree_util.keystr(path) for path, _ in leaves))
        object.__setattr__(self, "shapes", tuple(tuple(leaf.shape) for leaf in arrays))
        object.__setattr__(self, "dtypes", tuple(map(_dtype_of, arrays)))
        object.__setattr__(self, "structure", structure)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._parts == other._parts

    def __hash__(self) -> int:  # static fields of a structure may have no hash
        return hash(self._parts[:3])

    def __repr__(self) -> str:
        return f"Tree({len(self.paths)} arrays, {self.size:,} numbers)"

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.paths, self.shapes, self.dtypes, self.structure

    @property
    def size(self) -> int:
        """Number of numbers in a vector."""
        return sum(map(math.prod, self.shapes))

    @property
    def discrete(self) -> None:
        """Always ``None``: all numbers are real."""
        return None

    def canonical(self, vectors: Float[Rows, "*n sol"]) -> Float[Rows, "*n sol"]:
        """Return the vectors: all numbers matter."""
        return vectors

    def values(self, vectors: Rows) -> Any:
        """Return the tree of ``(batch, sol)`` vectors, each array with a leading batch axis."""
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = math.prod(shape)
            leaf = vectors[:, start : start + size].reshape(-1, *shape)
            leaves.append(leaf.astype(dtype) if dtype != "float32" else leaf)
            start += size
        if self.structure is None:
            return dict(zip(self.paths, leaves, strict=True))
        return jax.tree.unflatten(self.structure, leaves)

    def value(self, vector: Float[np.ndarray, " sol"]) -> Any:
        """Return the tree of one vector."""
        return jax.tree.map(lambda leaf: leaf[0], self.values(np.asarray(vector)[None]))

    def vector(self, tree: Any) -> Float[np.ndarray, " sol"]:
        """Return the vector of one tree."""
        return self.vectors(jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree))[0]

    def vectors(self, trees: Any) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of a tree whose arrays have a leading batch axis."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(trees)]
        shapes = tuple(leaf.shape[1:] for leaf in leaves)
        expected = f"a tree with arrays of shapes {checks.short(list(self.shapes))}"
        checks.expect(shapes == self.shapes, "tree", expected, checks.short(list(shapes)))
        flat = [leaf.reshape(len(leaf), -1).astype(np.float32) for leaf in leaves]
        return np.concatenate(flat, axis=1)

    def columns(self, vectors: Float[np.ndarray, "batch sol"]) -> dict[str, np.ndarray]:
        """Return the columns of a table, as those of a flat vector."""
        return {f"solution_{i}": column for i, column in enumerate(np.asarray(vectors).T)}

    def from_columns(self, table: Mapping[str, np.ndarray]) -> Float[np.ndarray, "batch sol"]:
        """Return the vectors of a table with the columns of `columns`."""
        return flat_columns(table, self.size)

    def to_json(self) -> dict[str, Any]:
        """Return the tree as plain values: paths, shapes, and the structure of containers."""
        leaves = [
            [path, list(shape), dtype]
            for path, shape, dtype in zip(self.paths, self.shapes, self.dtypes, strict=True)
        ]
        skeleton = None
        if self.structure is not None:
            numbered = jax.tree.unflatten(self.structure, list(range(len(self.paths))))
            skeleton = _skeleton(numbered) if _is_plain(numbered) else None
        return {"leaves": leaves, "skeleton": skeleton}

    @classmethod
    def from_json(cls, leaves: Any, skeleton: Any) -> "Tree":
        """Return the tree that `to_json` wrote.

        Raises:
            ValueError: It is not the description of a tree.
        """
        try:
            shapes = [jax.ShapeDtypeStruct(tuple(shape), dtype) for _, shape, dtype in leaves]
            tree = object.__new__(cls)
            if skeleton is None:
                cls.__init__(tree, shapes)
                object.__setattr__(tree, "structure", None)
            else:
                cls.__init__(tree, _filled(skeleton, shapes))
            object.__setattr__(tree, "paths", tuple(str(path) for path, _, _ in leaves))
        except (TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ValueError(f"it does not describe a tree of arrays ({error})") from None
        return tree


def flat_columns(table: Mapping[str, np.ndarray], size: int) -> Float[np.ndarray, "batch sol"]:
    """Return the columns ``solution_0``, ... of a table as vectors of ``size`` numbers."""
    names = [f"solution_{i}" for i in range(size)]
    missing = [name for name in names if name not in table]
    got = f"no column '{missing[0]}'" if missing else ""
    expected = f"columns solution_0 to solution_{size - 1}"
    checks.expect(not missing, "table", expected, got, "Add or rename columns.")
    more = f"solution_{size}"
    checks.expect(more not in table, "table", expected, f"a column '{more}' as well")
    vectors = np.stack([np.asarray(table[name]) for name in names], axis=1)
    return checks.finite_array("table", vectors, ndim=2)


def _dtype_of(leaf: Any) -> str:
    """Return the dtype of an array in a tree; float32 instead of float64."""
    name = str(jnp.dtype(leaf.dtype))
    return "float32" if name == "float64" else name


def _is_plain(node: Any) -> bool:
    """Whether a tree has no nodes but dicts with texts as keys, lists, tuples and ``None``."""
    if type(node) is dict:
        return all(isinstance(key, str) for key in node) and all(map(_is_plain, node.values()))
    if type(node) in (list, tuple):
        return all(map(_is_plain, node))
    return node is None or type(node) is int


def _skeleton(node: Any) -> Any:
    """Return a plain tree of numbers as JSON, in which tuples differ from lists."""
    if isinstance(node, dict):
        return {"dict": [[key, _skeleton(item)] for key, item in node.items()]}
    if isinstance(node, (list, tuple)):
        return {type(node).__name__: [_skeleton(item) for item in node]}
    return node


def _filled(skeleton: Any, leaves: Sequence[Any]) -> Any:
    """Return the tree that `_skeleton` describes, with leaves in the place of their numbers."""
    if skeleton is None or type(skeleton) is int:
        return None if skeleton is None else leaves[skeleton]
    ((kind, items),) = skeleton.items()
    if kind == "dict":
        return {str(key): _filled(item, leaves) for key, item in items}
    filled = [_filled(item, leaves) for item in items]
    if kind not in ("list", "tuple"):
        raise TypeError(f"a node {kind!r}")
    return tuple(filled) if kind == "tuple" else filled
