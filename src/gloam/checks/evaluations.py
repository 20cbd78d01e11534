"""Checks of what an evaluation returns: shapes, fields, and whether there is anything to use."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gloam.checks.arguments import expect, real_array


def rows(name: str, value: Any, *shapes: tuple[int, ...]) -> np.ndarray:
    """An evaluation result as an array of one of ``shapes``; NaN and infinities may pass."""
    array = real_array(name, value, "numbers", "Return floats or integers.")
    expected = f"shape {one_of(shapes)} (one row for each solution asked)"
    expect(
        array.shape in shapes,
        name,
        expected,
        f"shape {array.shape}",
        "Return one row for each row of ask().",
    )
    return array


def measure_shapes(batch: int, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes that a batch of measures may have: rows of the archive's shape, or flat ones.

    >>> measure_shapes(540, (28, 28)), measure_shapes(540, (2,))
    ([(540, 28, 28), (540, 784)], [(540, 2)])
    """
    return list(dict.fromkeys([(batch, *shape), (batch, math.prod(shape))]))


def one_of(values: Sequence[Any]) -> str:
    """Several accepted values in words.

    >>> one_of([(2, 28, 28), (2, 784)])
    '(2, 28, 28) or (2, 784)'
    """
    return " or ".join(str(value) for value in values)


def same_names(name: str, declared: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that the fields given are exactly the fields declared."""
    expect(
        set(declared) == set(given),
        name,
        f"the fields {sorted(declared)}",
        sorted(given),
        "Declare fields when building the archive: fields={'name': shape}.",
    )


class EvaluationError(RuntimeError):
    """Every solution of a batch failed to evaluate, so there is nothing to learn from."""


def some_valid(valid_rows: int, total: int) -> None:
    """Raise when no row of a batch could be used."""
    if valid_rows == 0:
        raise EvaluationError(
            f"evaluation: expected at least one finite result among {total} solutions, got none. "
            "Every row had an objective or a measure that was NaN or infinite, or measures of zero "
            "in a cosine archive: check the evaluation function on x0, and that x0 and sigma0 keep "
            "solutions in its domain."
        )
