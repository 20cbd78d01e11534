"""Whether a network takes rows of measures as images or flat, found by trying it on shapes."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from gloam import checks
from gloam.discounts.networks.frozen import Frozen


def row_shape_of(network: eqx.Module, measures: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a network takes rows: ``shape``, or empty for flat ones."""
    fix = "It must map one row of measures to one number, without state."
    checks.expect(
        isinstance(network, eqx.Module) and callable(network),
        "network",
        "an Equinox module that can be called",
        type(network).__name__,
        fix,
    )
    shape = checks.integers("shape", shape, minimum=1)
    checks.expect(
        math.prod(shape or (measures,)) == measures,
        "shape",
        f"a shape of the {measures} measures",
        shape,
    )
    # A frozen part gives its embedding its shape itself.
    shaped = len(shape) > 1 and not isinstance(network, Frozen)
    failures = []
    for row in [shape] * shaped + [(measures,)]:
        given = jax.ShapeDtypeStruct(row, jnp.float32)
        try:
            found = eqx.filter_eval_shape(network, given).shape  # pyright: ignore
        except Exception as error:
            failures.append((row, f"fails ({error})", error))
            continue
        if found in ((), (1,)):
            return row if len(row) > 1 else ()
        failures.append((row, f"gives shape {found}", None))
    told = "; ".join(f"on a row of shape {row} it {what}" for row, what, _ in failures)
    raise ValueError(
        f"network: expected a module that makes one number of {measures} measures, got "
        f"{type(network).__name__}: {told}. {fix}"
    ) from failures[-1][2]
