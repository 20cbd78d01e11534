"""Kernels for NVIDIA GPUs, where the compiler's own are too many, too slow or keep the host busy.

They are written in Pallas for Triton. Each is a function of arrays with a plain equivalent
elsewhere in gloam, which all other devices use and which the tests compare it with. Pallas is
experimental in JAX, so modules that import it are imported lazily, by `load`. If a kernel cannot be
imported, or a program with kernels cannot be compiled (`with_fallback`), gloam falls back to
plain code from then on, with one warning.
"""

import functools
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import jax

from gloam._tools.devices import compute_capability
from gloam._tools.warn import warn

_Built = TypeVar("_Built")
_switched_off = False


def usable() -> bool:
    """Whether the kernels run here: Triton needs an NVIDIA GPU of 2020 (Ampere) or later.

    ``GLOAM_KERNELS=off`` in the environment disables them.
    """
    if _switched_off or os.environ.get("GLOAM_KERNELS") == "off":
        return False
    return compute_capability() >= 8.0


def load(name: str) -> ModuleType | None:
    """Return the module of a kernel, such as ``"cholesky"``, or ``None`` to use plain code.

    >>> load("cholesky") is None or usable()
    True
    """
    global _switched_off
    if _switched_off or not usable():
        return None
    try:
        return importlib.import_module(f"gloam._tools.kernels.{name}")
    except Exception as error:  # an experimental module may be gone, or have changed
        _switched_off = True
        _warn(error)
        return None


def with_fallback(build: Callable[[], _Built], again: Callable[[], _Built]) -> _Built:
    """Return what ``build`` makes; if it fails with kernels, fall back to ``again`` without them.

    If that fails, too, the kernels were not the reason: they stay in use, and the first error is
    raised.

    Args:
        build: Traces, lowers or compiles something that may use kernels.
        again: Does the same from the start, reusing nothing that was traced before.
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
    """Return a function like `jax.jit` that falls back to plain code if kernels do not compile."""
    program: Any = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return with_fallback(lambda: program(*arguments), lambda: program(*arguments))

    vars(call).update(lower=program.lower, _cache_size=program._cache_size)  # as jax.jit has them
    return call


def _warn(error: Exception) -> None:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    warn(
        "the kernels for GPUs cannot be used with this version of JAX. Searches run without them, "
        f"which is slower ({reason}). Set GLOAM_KERNELS=off in the environment to silence this "
        "warning.",
    )
