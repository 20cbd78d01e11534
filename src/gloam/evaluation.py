"""The protocol of evaluations: what they take and return, and which of their rows are valid."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam.spaces import Form

VIOLATION = "violation"
"""Name of the field by which an evaluation says how much solutions violate its constraints."""


def measure_shapes(batch: int, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes that a batch of measures may have: rows of the archive's shape, or flat.

    >>> measure_shapes(540, (28, 28)), measure_shapes(540, (2,))
    ([(540, 28, 28), (540, 784)], [(540, 2)])
    """
    return list(dict.fromkeys([(batch, *shape), (batch, math.prod(shape))]))


def evaluation_parts(answer: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Split the return value of an evaluation into objectives (or ``None``), measures and fields.

    It may be measures alone, ``(measures, fields)``, ``(objectives, measures)`` or
    ``(objectives, measures, fields)``.

    >>> evaluation_parts(([1.0], [[2.0, 3.0]]))
    ([1.0], [[2.0, 3.0]], {})
    """
    if hasattr(answer, "shape"):
        return None, answer, {}
    length = len(answer) if isinstance(answer, (tuple, list)) else 0
    checks.expect(
        length in (2, 3),
        "evaluate",
        "measures, (objectives, measures) or (objectives, measures, fields)",
        f"{length} values" if length else type(answer).__name__,
        "Return measures alone as an array.",
    )
    if length == 2 and isinstance(answer[1], dict):
        return None, answer[0], answer[1]
    objectives, measures, *fields = answer
    if fields:
        got = f"{type(fields[0]).__name__} {checks.short(fields[0])}"
        fix = "Return fields by name, and measures alone as an array."
        checks.expect(isinstance(fields[0], Mapping), "fields", "a dict", got, fix)
    return objectives, measures, fields[0] if fields else {}


_RANDOM = {
    "key": "gloam.run",
    "seeds": "gloam.optimize",
    "seed": "gloam.optimize(..., per_solution=True)",
}


def asks_for(function: Callable, parameter: str) -> bool:
    """Return whether an evaluation asks for random numbers, by a parameter after ``*``.

    Args:
        function: The evaluation.
        parameter: ``key`` in compiled programs, ``seeds`` for evaluations of a batch in Python,
            ``seed`` for those of one solution.

    Raises:
        ValueError: It asks in another way.

    >>> asks_for(lambda solutions, *, key: None, "key"), asks_for(lambda solutions: None, "key")
    (True, False)
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some functions of extension modules
        return False
    # The first one is the solutions, by any name. Those with a default are the user's own.
    asked = [
        p
        for index, p in enumerate(signature.parameters.values())
        if p.name in _RANDOM and p.default is p.empty
        if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and index > 0)
    ]
    if not asked:
        return False
    fits = len(asked) == 1 and asked[0].name == parameter
    checks.expect(
        fits and asked[0].kind is inspect.Parameter.KEYWORD_ONLY,
        "evaluate",
        f"(solutions), or (solutions, *, {parameter}) for random numbers",
        signature,
        "The name is " + ", ".join(f"'{name}' in {where}" for name, where in _RANDOM.items()) + ".",
    )
    return True


class OfVectors:
    """A function of the values of a space or tree, as a function of flat vectors.

    It is a class, so that it can be sent to workers.
    """

    def __init__(self, function: Callable, form: Form, *, is_single: bool = False):
        self.function, self.form, self.is_single = function, form, is_single

    def __call__(self, vectors: Any, **random: Any) -> Any:
        """Evaluate a batch of vectors, or a single one."""
        values = self.form.value if self.is_single else self.form.values
        return self.function(values(vectors), **random)


def of_vectors(function: Callable, form: Form | None, *, is_single: bool = False) -> Callable:
    """Return a function of flat vectors; ``form`` is ``None`` if the function takes vectors.

    Args:
        function: A function of a batch of values, or of a single solution's (``is_single``).
        form: What the vectors stand for.
        is_single: Whether the function evaluates one solution at a time.
    """
    return function if form is None else OfVectors(function, form, is_single=is_single)


def valid_rows(accepted: Any, objectives: Any, violations: Any = None) -> Any:
    """Return a mask of the rows that may become elites. All others failed or are infeasible.

    Arrays may be those of NumPy or of JAX.

    Args:
        accepted: Mask of the measures that the archive accepts.
        objectives: Objectives, or ``None``.
        violations: Violations of the constraints, or ``None``.

    >>> valid_rows(np.full(4, True), np.array([0, np.nan, 0, 0]), np.array([0, 0, 1, np.nan]))
    array([ True, False, False, False])
    """
    if objectives is not None:
        accepted = accepted & (abs(objectives) <= checks.LARGEST)
    # A violation of NaN is a failure.
    return accepted if violations is None else accepted & (violations <= 0)


def succeeded_rows(
    accepted: np.ndarray, objectives: np.ndarray | None, fields: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return a mask that is false for failed rows.

    Infeasible rows have not failed, whatever their objectives and measures are.

    >>> succeeded_rows(np.full(2, True), None, {"violation": np.array([1.0, np.nan])})
    array([ True, False])
    """
    violations = fields.get(VIOLATION)
    if violations is None or violations.ndim != 1:
        return valid_rows(accepted, objectives)
    return valid_rows(accepted, objectives, violations) | (violations > 0)
