"""NumPy functions inside compiled programs: how a network of another library is called."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array


def host_call(
    function: Callable[..., Sequence[np.ndarray]],
    shapes: Sequence[jax.ShapeDtypeStruct],
    *arrays: Array,
) -> tuple[Array, ...]:
    """What a pure ``function`` of NumPy arrays returns, as an operation of JAX.

    `jax.pure_callback` says the same, but on the CPU it gives the function arrays that are still
    being copied, by the threads that wait for the function: with large arrays and one core that is
    a deadlock (jax-ml/jax#24255). There the function works on the program's own memory instead,
    which is faster, too.

    Args:
        function: Maps arrays, which it must not change, to a list of arrays.
        shapes: Shapes and dtypes of what it returns.
        arrays: What it is given.

    Example:
        >>> shapes = [jax.ShapeDtypeStruct((3,), np.float32)]
        >>> double = jax.jit(lambda x: host_call(lambda a: [2 * a], shapes, x)[0])
        >>> double(np.arange(3, dtype=np.float32)).tolist()
        [0.0, 2.0, 4.0]
    """
    cpu, others = (partial(call, function, tuple(shapes)) for call in (in_place, by_copies))
    return jax.lax.platform_dependent(*arrays, cpu=cpu, default=others)


def in_place(function: Callable, shapes: tuple, *arrays: Array) -> tuple[Array, ...]:
    """The call on the memory of a program that runs on the CPU.

    Where this version of JAX has no such calls, which are experimental, the call is by copies.
    """
    try:
        from jax.experimental.buffer_callback import buffer_callback
    except ImportError:
        return by_copies(function, shapes, *arrays)

    def call(context: Any, places: Sequence[Any], *buffers: Any) -> None:
        results = function(*(np.asarray(buffer) for buffer in buffers))
        for place, result in zip(places, results, strict=True):
            np.asarray(place)[...] = result

    return buffer_callback(call, shapes, vmap_method="sequential")(*arrays)


def by_copies(function: Callable, shapes: tuple, *arrays: Array) -> tuple[Array, ...]:
    """The call for programs on other devices, whose threads are not those that copy."""

    def call(*arrays: Any) -> tuple[np.ndarray, ...]:
        results = function(*(np.asarray(array) for array in arrays))
        return tuple(
            np.asarray(result, shape.dtype) for result, shape in zip(results, shapes, strict=True)
        )

    return jax.pure_callback(call, shapes, *arrays, vmap_method="sequential")
