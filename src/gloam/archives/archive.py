"""Extra fields of elites: what may be declared, and which values fit.

Names of measures: which may be given, and how tables and figures show them.

What an archive is: a division of measure space into cells. Elites live in a `Store`.
"""

import keyword
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam import checks
from gloam.records import MeasureSpace

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


_LONGEST = 100


def measure_names(
    names: Sequence[str] | None, measure_dim: int, fields: Iterable[str]
) -> tuple[str, ...]:
    """Checked names of the measures; empty for ``None``.

    They are columns of tables, so they differ from one another and from the other columns.
    """
    if names is None or len(names) == 0:
        return ()
    fix = "Give one name for each measure: measure_names=('speed', 'height')."
    is_text = not isinstance(names, str) and all(isinstance(name, str) for name in names)
    checks.expect(is_text, "measure_names", "a list of texts", checks.short(names), fix)
    found = f"{len(names)} names"
    checks.expect(len(names) == measure_dim, "measure_names", f"{measure_dim} names", found, fix)
    for name in names:
        sound = len(name.strip()) > 0 and len(name) <= _LONGEST and name.isprintable()
        one_line = f"texts of 1 to {_LONGEST} printable characters"
        checks.expect(sound, "measure_names", one_line, checks.short(name))
        taken = name in RESERVED or name in fields or _is_numbered(name)
        other = "names that are no other columns of the table of elites"
        checks.expect(not taken, "measure_names", other, repr(name), "Choose another name.")
    checks.expect(
        len(set(names)) == len(names), "measure_names", "different names", checks.short(names)
    )
    return tuple(names)


def labels(names: tuple[str, ...], measure_dim: int) -> tuple[str, ...]:
    """What figures write at their axes: the names, or ``measure 1``, ``measure 2``, ...

    >>> labels((), 2), labels(("speed", "height"), 2)
    (('measure 1', 'measure 2'), ('speed', 'height'))
    """
    return names or tuple(f"measure {number + 1}" for number in range(measure_dim))


def _is_numbered(name: str) -> bool:
    """Whether a name is that of a number of a solution, as a table names them."""
    stem, _, number = name.rpartition("_")
    return number.isdigit() and stem in ("solution", "measures")


class Archive(eqx.Module):
    """Frozen description of an archive: its cells, the bounds of its measures, extra fields.

    Kinds of archive differ only in `index_of` and `centers_of`.
    """

    num_cells: eqx.AbstractVar[int]
    lower: eqx.AbstractVar[Float[Array, " meas"]]
    upper: eqx.AbstractVar[Float[Array, " meas"]]
    f_min: eqx.AbstractVar[float]
    fields: eqx.AbstractVar[dict[str, jax.ShapeDtypeStruct]]

    @property
    def measure_dim(self) -> int:
        """Number of measures."""
        return self.lower.shape[0]

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one row of measures, as evaluations may return it: (28, 28) for images.

        Inside gloam measures are flat rows; only here and there they are shown in this shape.
        """
        return (self.measure_dim,)

    @property
    def measure_space(self) -> MeasureSpace:
        """Bounds and shape of the measures."""
        return MeasureSpace(self.lower, self.upper, self.measure_shape)

    @property
    def measure_names(self) -> tuple[str, ...]:
        """Names of the measures, which tables and figures show; empty where none were given."""
        return ()

    def accepts(
        self, measures: Float[Array | np.ndarray, "batch meas"]
    ) -> Bool[Array | np.ndarray, " batch"]:
        """True for rows that can have a cell; others count as failed. On host or device."""
        xp = np if isinstance(measures, np.ndarray) else jnp
        return xp.all(xp.isfinite(measures), axis=1)

    def discount_space(self, measures: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
        """Measures in the space in which cells have their centres; discounts work there."""
        return measures

    @abstractmethod
    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """The cell of each row of measures."""

    def index_on_host(
        self, measures: Float[np.ndarray, "batch meas"]
    ) -> Int[np.ndarray, " batch"] | None:
        """Cells found outside compiled programs; ``None`` when `index_of` is to find them there."""
        return None

    def for_programs(self, *, cells_given: bool = False) -> "Archive":
        """The archive as compiled programs take it: with the arrays that their search needs.

        Args:
            cells_given: Whether the cells are found by `index_on_host`, where it finds them. Called
                before the first of them, so that it can prepare itself.
        """
        return self

    @abstractmethod
    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """The centre of each cell in measure space."""

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """How close measures come to the centres of their cells: 1 minus the mean squared error.

        It is the objective of searches that evaluate measures only.
        """
        return 1.0 - jnp.mean(jnp.square(measures - self.centers_of(cells)), axis=1)
