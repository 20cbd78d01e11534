"""Checks of an evaluation that JAX traces, before its programs are compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gloam import step
from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.emitters import Branching
from gloam.evaluation import VIOLATION, evaluation_parts, measure_shapes, of_vectors


def check_traced_evaluation(domain: Callable, algorithm: Algorithm) -> None:
    """Trace the domain once, without running it, and check the shapes and dtypes of its results."""
    batch, archive = algorithm.emitter.num_solutions, algorithm.archive
    solutions = jax.ShapeDtypeStruct((batch, algorithm.emitter.x0.shape[0]), jnp.float32)
    domain = of_vectors(domain, algorithm.emitter.form)
    try:
        objectives, measures, fields = jax.eval_shape(
            lambda rows: evaluation_parts(domain(rows)), solutions
        )
    except Exception as error:
        raise ValueError(
            f"domain: expected a function that JAX can trace on solutions of shape "
            f"{solutions.shape}, got an error from it: {error}. For NumPy, PyTorch or a simulator "
            "use gloam.optimize, or ask and tell."
        ) from error
    if objectives is not None:
        got = f"shape {objectives.shape} from the domain"
        checks.expect(objectives.shape == (batch,), "objectives", f"shape {(batch,)}", got)
        _check_real("objectives", objectives.dtype)
    _check_real("measures", measures.dtype)
    shapes = measure_shapes(batch, archive.measure_shape)
    checks.expect(
        measures.shape in shapes,
        "measures",
        f"shape {checks.one_of(shapes)}, as the archive has",
        f"shape {measures.shape} from the domain",
    )
    if VIOLATION in fields:
        got = f"shape {fields[VIOLATION].shape} from the domain"
        is_row = fields.pop(VIOLATION).shape == (batch,)
        checks.expect(is_row, VIOLATION, f"shape {(batch,)}", got)
    checks.same_names("fields", archive.fields, fields)
    if algorithm.emitter.num_gradients:
        _check_gradients(domain, algorithm, objectives, measures)


def _check_gradients(
    domain: Callable, algorithm: Algorithm, objectives: Any, measures: Any
) -> None:
    """Trace the gradients of the domain once, without running it.

    Args:
        domain: The domain.
        algorithm: An algorithm whose emitter needs gradients.
        objectives: Shape and dtype of the objectives, or ``None``.
        measures: Shape and dtype of the measures.
    """
    emitter = algorithm.emitter
    is_branching = isinstance(emitter, Branching)
    number = len(emitter.points(emitter.init()) if is_branching else emitter.gradient_rows)
    fix = (
        "Use operations that JAX can differentiate, gloam.optimize with vjp=..., or an algorithm "
        "without gradients."
    )
    for name, shape in (("objectives", objectives), ("measures", measures)):
        is_float = shape is None or jnp.issubdtype(shape.dtype, jnp.floating)
        expected = "floats, because the emitter needs gradients"
        checks.expect(is_float, name, expected, f"{shape and shape.dtype} from the domain", fix)

    def gradients(rows: jax.Array) -> jax.Array:
        outputs, vjp = jax.vjp(lambda rows: step.evaluation(domain(rows))[:2], rows)
        return vjp(outputs)[0]

    solutions = jax.ShapeDtypeStruct((number, algorithm.emitter.x0.shape[0]), jnp.float32)
    try:
        jax.eval_shape(gradients, solutions)
    except Exception as error:
        raise ValueError(
            f"domain: expected a function that JAX can differentiate, because the emitter needs "
            f"the gradients of {number} of {algorithm.emitter.num_solutions} solutions, got an "
            f"error from it: {error}. {fix}"
        ) from error


def _check_real(name: str, dtype: Any) -> None:
    is_real = any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer))
    expected = "real numbers (floats or integers)"
    checks.expect(is_real, name, expected, f"{dtype} from the domain")
