"""Sharing of compiled programs between searches of equal shapes.

Programs follow the rules of `jax.jit`: arrays are arguments, and everything else is static. Numbers
in the settings of gloam's modules (``alpha``, ``sigma0``, ``f_min``, ...) count as arrays, so that
another value or seed does not compile again. Static settings of gloam's modules are compared by
value, functions and modules of the user by hash and equality, which is identity for functions. As
with `jax.jit`, values that a function reads while it is traced become constants of the program.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from gloam._tools import devices, kernels

_ARRAY = object()  # placeholder of an array among the leaves of a `Static`
_INT32 = np.iinfo(np.int32)


class Static:
    """The static part of a tree: its structure, static fields and leaves that are not arrays.

    It is hashable, as `jax.jit` requires of static arguments. Leaves that cannot be hashed are
    compared by identity. The device and the use of kernels are part of it, because the code of a
    program depends on them.
    """

    def __init__(self, structure: Any, leaves: tuple[Any, ...]):
        self._structure, self._leaves = structure, leaves
        self._target = devices.platform(), kernels.usable()
        # Static fields may be unhashable (a dict of fields); the structure's hash ignores them.
        self._hash = hash((structure, tuple(map(_hash, leaves)), self._target))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Static) or self._hash != other._hash:
            return False
        try:
            same = self._target == other._target and self._structure == other._structure
            return bool(same) and all(map(_equal, self._leaves, other._leaves))
        except Exception:  # a comparison of the user's objects that has no truth value
            return False

    def with_arrays(self, arrays: list[Array]) -> Any:
        """Return the tree with arrays in their places."""
        remaining = iter(arrays)
        leaves = [next(remaining) if leaf is _ARRAY else leaf for leaf in self._leaves]
        return jax.tree.unflatten(self._structure, leaves)


def partition(tree: Any) -> tuple[list[Array], Static]:
    """Split a tree into its arrays and numbers, as arrays, and its static part.

    >>> import jax.numpy as jnp
    >>> arrays, static = partition((jnp.ones(3), "text"))
    >>> arrays[0].shape, static == partition((jnp.zeros(3), "text"))[1]
    ((3,), True)
    """
    leaves, structure = jax.tree.flatten(_with_number_arrays(tree))
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    kept = tuple(_ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
    return arrays, Static(structure, kept)


def compiled(function: Callable, *, donate_state: bool = False) -> Callable:
    """Compile a function of a tree, a state and more arguments.

    The compiled function takes the arrays and the static part of the tree, by `partition`, in the
    place of the tree. ``donate_state`` lets it reuse the memory of the state.
    """

    def program(static: Static, arrays: list[Array], *arguments: Any) -> Any:
        return function(static.with_arrays(arrays), *arguments)

    return kernels.jit(program, static_argnums=0, donate_argnums=2 if donate_state else ())


def _with_number_arrays(node: Any, ours: bool = False) -> Any:
    """Return the tree with arrays for the numbers in gloam's modules.

    Numbers in other modules stay static, because their code may branch on them.
    """
    children, structure = eqx.tree_flatten_one_level(node)
    if len(children) == 1 and children[0] is node:
        return _number_array(node) if ours else node
    if isinstance(node, eqx.Module):
        ours = type(node).__module__.partition(".")[0] in ("gloam", "gloam_lab")
    return jax.tree.unflatten(structure, [_with_number_arrays(child, ours) for child in children])


def _number_array(leaf: Any) -> Any:
    if isinstance(leaf, float):
        return jax.device_put(np.float32(leaf))
    is_integer = isinstance(leaf, int) and not isinstance(leaf, bool)
    if is_integer and _INT32.min <= leaf <= _INT32.max:
        return jax.device_put(np.int32(leaf))
    return leaf


def _hash(leaf: Any) -> int:
    try:
        return hash((type(leaf), leaf))
    except TypeError:
        return id(leaf)


def _equal(first: Any, second: Any) -> bool:
    if first is second:
        return True
    try:
        hash(first)
    except TypeError:
        return False
    return type(first) is type(second) and bool(first == second)
