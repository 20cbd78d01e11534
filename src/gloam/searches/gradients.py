"""Gradients from Python: checks of the user's vector-Jacobian product and of its results."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam._tools import checks
from gloam.emitters import Emitter

VJP = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""Maps solutions ``(n, sol)``, weights of their objectives ``(n,)`` and weights of their measures
``(n, *shape)`` to the gradients ``(n, sol)`` of the weighted sums."""

_WITHOUT = "or an algorithm without gradients"


def check_vjp(vjp: Any, emitter: Emitter) -> None:
    """Check that ``vjp`` is a function if the emitter needs gradients, and ``None`` otherwise."""
    number, total = len(emitter.gradient_rows), emitter.num_solutions
    if not number:
        fix = "Leave it out, or use gloam.DMS(..., gradients=True)."
        checks.expect(vjp is None, "vjp", "None for an emitter without gradients", _kind(vjp), fix)
        return
    checks.expect(
        emitter.form is None,
        "x0",
        "a flat vector, because gradients from Python are those of vectors",
        f"a {type(emitter.form).__name__.lower()}",
        "Give a flat vector, and convert it in your functions; or use gloam.run with a function "
        f"that JAX traces, {_WITHOUT}.",
    )
    checks.expect(
        callable(vjp),
        "vjp",
        f"a function, because the emitter needs the gradients of {number} of {total} solutions",
        _kind(vjp),
        "Give vjp=..., a function of solutions and of weights of objectives and measures "
        "(gloam.interop.torch_evaluation makes one of a PyTorch function), use gloam.run with a "
        f"function in JAX, {_WITHOUT}.",
    )


def check_no_gradients(emitter: Emitter) -> None:
    """Check that an emitter can be used in an asynchronous search, which has no gradients."""
    number = len(emitter.gradient_rows)
    checks.expect(
        number == 0,
        "algorithm",
        "an emitter without gradients for an asynchronous search",
        f"one that needs those of {number} of {emitter.num_solutions} solutions",
        f"Use gloam.Search, or gloam.optimize without asynchronous=True, {_WITHOUT}.",
    )


def gradients_by(
    vjp: VJP,
    solutions: Float[np.ndarray, "n sol"],
    objective_weights: Float[np.ndarray, " n"],
    measure_weights: Float[np.ndarray, "n ..."],
) -> Float[np.ndarray, "n sol"]:
    """Call ``vjp`` and check what it returns. Gradients that are NaN or infinite are allowed.

    Raises:
        ValueError: The gradients have another shape, or are not real numbers.
    """
    number, shape = len(solutions), solutions.shape
    try:
        gradients = vjp(solutions, objective_weights, measure_weights)
    except Exception as error:
        error.add_note(f"vjp raised it, for the gradients of {number} solutions.")
        raise
    fix = "Return the gradient of each solution's weighted sum, in the shape of the solutions."
    array = checks.real_array("vjp", gradients, f"gradients of shape {shape}", fix)
    expected, got = f"gradients of shape {shape}, one row for each solution", f"{array.shape}"
    checks.expect(array.shape == shape, "vjp", expected, got, fix)
    with np.errstate(all="ignore"):  # numbers beyond float32 become infinite, and are masked
        return array.astype(np.float32)


def _kind(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {checks.short(value)}"
