"""Kernels for NVIDIA GPUs, where the compiler's own are too many, too slow or keep the host busy.

Written in Pallas, for Triton. Each is one function of arrays with a plain twin elsewhere in gloam,
to which the tests hold it, and which every other device uses. The modules import Pallas, which is
experimental in JAX, so they are imported where they are used, by `load`. Where a kernel cannot be
imported, or a program with kernels cannot be compiled (`with_plain_twins`), the plain twins run
from then on, and one warning says so.
"""

import functools
import importlib
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import jax

from gloam.devices import compute_capability

_Built = TypeVar("_Built")
_switched_off = False


def usable() -> bool:
    """Whether the kernels run here: Triton wants an NVIDIA GPU of 2020 (Ampere) or later.

    ``GLOAM_KERNELS=off`` in the environment does without them.
    """
    if _switched_off or os.environ.get("GLOAM_KERNELS") == "off":
        return False
    return compute_capability() >= 8.0


def load(name: str) -> ModuleType | None:
    """The module of a kernel, such as ``"cholesky"``, or ``None`` where its plain twin has to do.

    >>> load("cholesky") is None or usable()
    True
    """
    if _switched_off or not usable():
        return None
    try:
        return importlib.import_module(f"gloam.kernels.{name}")
    except Exception as error:  # an experimental module may be gone, or have changed
        _switch_off(error)
        return None


def with_plain_twins(build: Callable[[], _Built], again: Callable[[], _Built]) -> _Built:
    """What ``build`` makes; where it fails with kernels, what ``again`` makes without them.

    If that fails, too, the kernels were not the reason: they stay in use, and the first error is
    raised.

    Args:
        build: Traces, lowers or compiles something that may have kernels in it.
        again: Does the same from the start, without anything that was traced before.
    """
    global _switched_off
    try:
        return build()
    except Exception as error:
        if _switched_off or not usable():
            raise
        _switched_off = True
        jax.clear_caches()  # what was traced has kernels in it
        try:
            built = again()
        except Exception:
            _switched_off = False
            jax.clear_caches()
            raise error from None
        _warn(error)
        return built


def jit(function: Callable, **options: Any) -> Callable:
    """`jax.jit`, compiled without kernels where it cannot be compiled with them."""
    program: Any = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return with_plain_twins(lambda: program(*arguments), lambda: program(*arguments))

    vars(call).update(lower=program.lower, _cache_size=program._cache_size)  # as jax.jit has them
    return call


def _switch_off(error: Exception) -> None:
    global _switched_off
    _switched_off = True
    _warn(error)


def _warn(error: Exception) -> None:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    warnings.warn(
        "the kernels for GPUs cannot be used with this version of JAX, and searches run without "
        f"them, which is slower ({reason}). GLOAM_KERNELS=off in the environment does without "
        "them and without this warning.",
        stacklevel=3,
    )


__all__ = ["jit", "load", "usable", "with_plain_twins"]
