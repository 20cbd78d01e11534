"""Extra fields of elites: what may be declared, and which values fit."""

import keyword
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gloam import checks

FieldSpecs = Mapping[str, Any]
# Arguments of `tell`, and columns of tables: fields of these names could not be told or stored.
RESERVED = {
    "self",
    "solution",
    "solutions",
    "objective",
    "objectives",
    "measures",
    "cell",
    "cells",
    "seed",
    "iteration",
}
_DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int32",
    "int16",
    "int8",
    "uint32",
    "uint16",
    "uint8",
    "bool",
)


def field_specs(fields: FieldSpecs | None) -> dict[str, jax.ShapeDtypeStruct]:
    """Extra fields as shapes with dtypes: a shape alone means float32."""
    specs: dict[str, jax.ShapeDtypeStruct] = {}
    checks.instance("fields", {} if fields is None else fields, Mapping, "Give {name: shape}.")
    for name, spec in (fields or {}).items():
        good = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
        checks.expect(
            good and name not in RESERVED,
            "fields",
            "names that are identifiers, and none of Python's keywords or of "
            f"{', '.join(sorted(RESERVED))}",
            checks.short(name),
        )
        specs[name] = _field_spec(name, spec)
    for name in specs:  # a table names the numbers of an array name_0, name_1, ...
        stem, _, number = name.rpartition("_")
        clash = number.isdigit() and stem in ("measures", "solution", *specs)
        checks.expect(not clash, "fields", f"names other than columns of '{stem}'", repr(name))
    return specs


def _field_spec(name: str, spec: Any) -> jax.ShapeDtypeStruct:
    """A shape, or a shape with a dtype that JAX keeps as it is."""
    field = f"fields['{name}']"
    if isinstance(spec, jax.ShapeDtypeStruct):
        dtype = str(spec.dtype)
        checks.expect(
            dtype in _DTYPES,
            field,
            f"one of the dtypes {', '.join(_DTYPES)}",
            dtype,
            "JAX narrows 64 bits: use int32 or float32.",
        )
        return spec
    sizes = spec if isinstance(spec, Sequence) and not isinstance(spec, str) else (spec,)
    fix = "Give a shape, such as () or (28, 28), or a jax.ShapeDtypeStruct."
    shape = tuple(checks.integer(field, size, minimum=0, fix=fix) for size in sizes)
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def field_rows(name: str, value: Any, batch: int, spec: jax.ShapeDtypeStruct) -> np.ndarray:
    """Values of a field for a batch, refused where the field's dtype cannot hold them."""
    dtype = np.dtype(spec.dtype)
    shape = (batch, *spec.shape)
    if dtype.kind == "b":
        array = np.asarray(value)
        is_boolean = array.dtype.kind == "b" and not np.ma.isMaskedArray(value)
        checks.expect(
            is_boolean and array.shape == shape,
            name,
            f"booleans of shape {shape}",
            f"{array.dtype} of shape {array.shape}",
        )
        return array
    array = checks.rows(name, value, shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wide = array.astype(np.float64)
        fits = np.isfinite(wide).all() and (wide == np.trunc(wide)).all()
        fits = fits and (wide >= limits.min).all() and (wide <= limits.max).all()
        checks.expect(
            bool(fits),
            name,
            f"whole numbers from {limits.min} to {limits.max}, which {dtype} holds",
            f"{wide.min():g} to {wide.max():g}",
            "Declare the field with a wider dtype, or as float32.",
        )
    with np.errstate(all="ignore"):
        return array.astype(dtype)
