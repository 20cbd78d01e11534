"""The device that programs run on, and operations whose implementation depends on it.

The device is that of `jax.default_device` if it is set, and otherwise JAX's first. Results do not
depend on the implementation, but for rounding.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_Carry = TypeVar("_Carry")
_MANY_COMPARISONS = 10**6
_CONFIG: Any = jax.config  # its options are not declared


def default_device() -> Any:
    """Return the device that programs run on.

    >>> with jax.default_device(jax.devices("cpu")[0]):
    ...     default_device().platform
    'cpu'
    """
    chosen = _CONFIG.jax_default_device
    if chosen is None:
        return jax.devices()[0]
    return jax.devices(chosen)[0] if isinstance(chosen, str) else chosen


def usable_devices() -> list[Any]:
    """Return the devices of this process that seeds are distributed over.

    Only `jax.default_device` if it is a device; all devices of a platform if it is a platform.
    """
    chosen = _CONFIG.jax_default_device
    if chosen is None or isinstance(chosen, str):
        return jax.local_devices(backend=chosen)
    return [chosen]


def platform() -> str:
    """Return the platform of programs: ``"cpu"``, ``"gpu"``, ..."""
    return default_device().platform


def runs_on_cpu() -> bool:
    """Return whether programs run on a CPU."""
    return platform() == "cpu"


def on_cuda() -> bool:
    """Return whether programs run on an NVIDIA GPU.

    >>> on_cuda() and runs_on_cpu()
    False
    """
    return platform() == "gpu" and "cuda" in default_device().client.platform_version


def compute_capability() -> float:
    """Return the compute capability of an NVIDIA GPU, such as 9.0; 0 for other devices."""
    return float(default_device().compute_capability) if on_cuda() else 0.0


def memory_bytes(otherwise: int) -> int:
    """Return the bytes of memory that programs may use, or ``otherwise`` if it is not known."""
    return (default_device().memory_stats() or {}).get("bytes_limit", otherwise)


def place_of_ranks(counts: Int[Array, " n"], ranks: Int[Array, " m"]) -> Int[Array, " m"]:
    """Return, for each rank, the first place whose running count exceeds it.

    >>> place_of_ranks(jnp.array([0, 1, 1, 2]), jnp.array([0, 1])).tolist()
    [1, 3]
    """
    # On a GPU, comparing a few ranks with all counts takes as long as one or two steps of a binary
    # search. For many ranks the search is unrolled into one kernel.
    few = ranks.size * counts.size <= _MANY_COMPARISONS
    method = "scan" if runs_on_cpu() else "compare_all" if few else "scan_unrolled"
    return jnp.searchsorted(counts, ranks, side="right", method=method)


def sums_by_group(
    values: Float[Array, " n *shape"], groups: Int[Array, " n"], number: int
) -> Float[Array, " number *shape"]:
    """Return the sum of the values of each group. Groups past the last one are dropped.

    >>> sums_by_group(jnp.array([1.0, 2.0, 4.0, 8.0]), jnp.array([1, 0, 1, 2]), 2).tolist()
    [2.0, 5.0]
    """
    sums = jnp.zeros((number, *values.shape[1:]), values.dtype)
    if runs_on_cpu():
        return sums.at[groups].add(values, mode="drop")
    # A GPU would add in any order, and round differently every time. In order of the groups, the
    # running sums begin again with every group, and are complete at its last value.
    order = jnp.argsort(groups)
    groups = groups[order]
    is_first = jnp.concatenate([jnp.ones(1, bool), groups[1:] != groups[:-1]])
    is_last = jnp.concatenate([is_first[1:], jnp.ones(1, bool)])
    begins = is_first.reshape(-1, *[1] * (values.ndim - 1))

    def add(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    running = jax.lax.associative_scan(add, (begins, values[order]))[1]
    return sums.at[jnp.where(is_last, groups, number)].set(running, mode="drop")


def loop(
    needed: Int[Array, ""],
    most: int,
    step: Callable[[Int[Array, ""], _Carry], _Carry],
    carry: _Carry,
) -> _Carry:
    """Return the carry after ``step(i, carry)`` for each ``i < needed``, where ``needed <= most``.

    A CPU stops after ``needed`` steps. A GPU runs all ``most`` steps and drops the surplus, because
    a loop of unknown length would synchronize with the host before every step.

    >>> int(loop(jnp.int32(3), 5, lambda i, total: total + i, jnp.int32(0)))
    3
    """
    if runs_on_cpu():
        return jax.lax.fori_loop(0, needed, step, carry)

    def step_if_needed(i: Int[Array, ""], old: _Carry) -> _Carry:
        return jax.tree.map(lambda a, b: jnp.where(i < needed, a, b), step(i, old), old)

    return jax.lax.fori_loop(0, most, step_if_needed, carry)
