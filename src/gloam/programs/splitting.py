"""What a user's function reads besides its arguments: a program is compiled for these values.

An algorithm as arrays and the rest, so that equal programs are compiled once in a process.

Numbers in the settings of gloam's modules (``alpha``, ``sigma0``, ``f_min``, ...) are Python
numbers for the user, and arrays for the compiler: another value needs no other program. What
remains is compared by value.
"""

import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gloam import devices, kernels
from gloam.algorithms import Algorithm


def variables_of(function: Any) -> tuple[Any, ...]:
    """Values of the global, enclosing and default variables that a Python function names.

    Also those of functions among them that are of the same module. Whoever runs a function again
    after such a variable was set to something else must compile it again.

    >>> variables_of(lambda x, offset=3.0: x + offset)
    (3.0,)
    """
    found: list[Any] = []
    waiting, seen = [getattr(function, "__func__", function)], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, types.FunctionType) or one in seen:
            continue
        seen.add(one)
        values = _values(one)
        found += values
        waiting += [value for value in values if getattr(value, "__module__", 0) == one.__module__]
    return tuple(found)


def _values(function: types.FunctionType) -> list[Any]:
    named = (function.__kwdefaults__ or {}).values()
    values: list[Any] = [*(function.__defaults__ or ()), *named]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not set yet
            values.append(None)
    codes = [function.__code__]
    for code in codes:  # grows: functions inside of it have codes of their own
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        names = [name for name in code.co_names if name in function.__globals__]
        values += [function.__globals__[name] for name in names]
    return values


_ARRAY = object()  # stands for an array among the leaves of a `Rest`
_INT32 = np.iinfo(np.int32)
# Settings of JAX that change what a program computes. `jax.jit` compares them itself; programs that
# are compiled ahead of time do not.
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_disable_jit",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)


class Rest:
    """What a tree is besides its arrays: its structure, its static fields and its functions.

    Two of them are equal when they describe the same program for arrays of the same shapes. Leaves
    that cannot be hashed, such as objects of a user's own class, are equal to themselves alone. So
    are functions, as long as the variables that they read are the same.
    """

    def __init__(self, structure: Any, leaves: tuple[Any, ...]):
        self._structure = structure
        self._leaves = leaves
        self._variables = tuple(value for leaf in leaves for value in variables_of(leaf))
        # Static fields may be unhashable (a dict of fields); the structure's hash leaves them out.
        self._hash = hash((structure, tuple(_hash(leaf) for leaf in leaves)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Rest) or self._hash != other._hash:
            return False
        try:
            same = bool(self._structure == other._structure)
        except Exception:  # static fields of a user's module whose comparison is no yes or no
            return False
        same &= len(self._variables) == len(other._variables)
        pairs = zip(self._leaves + self._variables, other._leaves + other._variables, strict=False)
        return same and all(_same(*pair) for pair in pairs)

    def with_arrays(self, arrays: list[Array]) -> Any:
        """The tree with these arrays in their places."""
        found = iter(arrays)
        leaves = [next(found) if leaf is _ARRAY else leaf for leaf in self._leaves]
        return jax.tree.unflatten(self._structure, leaves)


def for_programs(algorithm: Algorithm, *, cells_given: bool = False) -> Algorithm:
    """The algorithm with an archive that has the arrays that compiled programs search by."""
    archive = algorithm.archive.for_programs(cells_given=cells_given)
    return eqx.tree_at(lambda a: a.archive, algorithm, archive)


def split(tree: Any) -> tuple[list[Array], Rest]:
    """Arrays and numbers of a tree, as arrays, and what remains of it.

    >>> arrays, rest = split((jnp.ones(3), "text"))
    >>> arrays[0].shape, rest == split((jnp.zeros(3), "text"))[1]
    ((3,), True)
    """
    leaves, structure = jax.tree.flatten(_with_number_arrays(tree))
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    kept = tuple(_ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
    return arrays, Rest(structure, kept)


def shapes_of(arrays: Any) -> tuple[Any, ...]:
    """Shapes and dtypes of arrays, which can be hashed."""
    return tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arrays))


def surroundings() -> tuple[Any, ...]:
    """What a program depends on besides its arguments: the device and settings of the process."""
    options = tuple(getattr(jax.config, name) for name in _OPTIONS)
    return devices.platform(), kernels.usable(), *options


def _with_number_arrays(node: Any, ours: bool = False) -> Any:
    """The tree with arrays for the numbers in gloam's modules.

    Numbers in other modules stay: their code may branch on them in Python.
    """
    children, structure = eqx.tree_flatten_one_level(node)
    if len(children) == 1 and children[0] is node:
        return _number_array(node) if ours else node
    if isinstance(node, eqx.Module):
        ours = type(node).__module__.partition(".")[0] == "gloam"
    return jax.tree.unflatten(structure, [_with_number_arrays(child, ours) for child in children])


def _number_array(leaf: Any) -> Any:
    if isinstance(leaf, float):
        return jnp.asarray(leaf, jnp.float32)
    whole = isinstance(leaf, int) and not isinstance(leaf, bool)
    if whole and _INT32.min <= leaf <= _INT32.max:
        return jnp.asarray(leaf, jnp.int32)
    return leaf


def _hash(leaf: Any) -> int:
    try:
        return hash((type(leaf), leaf))
    except TypeError:
        return id(leaf)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        hash(one)
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False
