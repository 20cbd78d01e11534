"""Interface of archives: a division of measure space into cells, with declared fields and names.

Elites are kept apart from it, in a `gloam.archives.store.Store`.
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

from gloam._tools import checks
from gloam.evaluation import VIOLATION
from gloam.records import MeasureSpace

FieldSpecs = Mapping[str, Any]
_ARGUMENTS = {"self", "solutions", "objectives", "measures", "cells", "vjp"}
_COLUMNS = {"solution", "objective", "cell", "seed", "iteration"}
RESERVED_NAMES = _ARGUMENTS | _COLUMNS | {VIOLATION}
"""Arguments of `tell` and columns of tables, which fields and measures cannot be named after."""
_DTYPES = ("float32", "float16", "bfloat16", "int32", "int16", "int8")
_DTYPES += ("uint32", "uint16", "uint8", "bool")
_LONGEST_NAME = 100


class Archive(eqx.Module):
    """Frozen description of an archive: its cells, the bounds of its measures, extra fields.

    Kinds of archive differ only in `index_of` and `centers_of`.
    """

    num_cells: eqx.AbstractVar[int]
    lower: eqx.AbstractVar[Float[Array, " meas"]]
    upper: eqx.AbstractVar[Float[Array, " meas"]]
    f_min: eqx.AbstractVar[float | None]
    fields: eqx.AbstractVar[dict[str, jax.ShapeDtypeStruct]]

    @property
    def measure_dim(self) -> int:
        """Number of measures."""
        return self.lower.shape[0]

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one row of measures, as evaluations may return it: (28, 28) for images.

        Inside gloam, measures are flat rows.
        """
        return (self.measure_dim,)

    @property
    def measure_space(self) -> MeasureSpace:
        """Bounds and shape of the measures."""
        return MeasureSpace(self.lower, self.upper, self.measure_shape)

    @property
    def measure_names(self) -> tuple[str, ...]:
        """Names of the measures for tables and figures; empty if none were given."""
        return ()

    def f_min_from(self, default: Any) -> Any:
        """Return ``f_min``, or ``default`` if none was given."""
        return default if self.f_min is None else self.f_min

    @abstractmethod
    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """Return the cell of each row of measures."""

    @abstractmethod
    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """Return the center of each cell in measure space."""

    @property
    def division(self) -> tuple[Any, ...]:
        """Values that determine the cells; by default their centers."""
        return (self.centers_of(jnp.arange(self.num_cells, dtype=jnp.int32)),)

    def has_cells_of(self, other: "Archive") -> bool:
        """Return whether another archive has the same cells under the same numbers."""
        if type(self) is not type(other) or self.num_cells != other.num_cells:
            return False
        return self is other or all(map(np.array_equal, self.division, other.division))

    def accepts(
        self, measures: Float[Array | np.ndarray, "batch meas"]
    ) -> Bool[Array | np.ndarray, " batch"]:
        """True for rows that can have a cell; others count as failed. On host or device."""
        xp = np if isinstance(measures, np.ndarray) else jnp
        return xp.all(xp.isfinite(measures), axis=1)

    def discount_space(self, measures: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
        """Map measures to the space of the cells' centers, in which discounts work."""
        return measures

    @property
    def units(self) -> float | Float[Array, " meas"]:
        """Lengths in the space of the discount that count equally in the distance to a center."""
        return 1.0

    def squared_distances(
        self, measures: Float[Array, "n meas"], cells: Int[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return mean squared distances between measures and centers of cells, in `units`."""
        steps = (self.discount_space(measures) - self.centers_of(cells)) / self.units
        return jnp.mean(jnp.square(steps), axis=1)

    def excess(
        self, measures: Float[Array, "n meas"], cells: Int[Array, " n"]
    ) -> Float[Array, " n"] | None:
        """Return distances beyond the largest one from the centers of cells at which rows count.

        Rows with an excess above 0 are infeasible. ``None``: they count at any distance.
        """
        return None

    def index_on_host(
        self, measures: Float[np.ndarray, "batch meas"]
    ) -> Int[np.ndarray, " batch"] | None:
        """Return cells found outside compiled programs, or ``None`` to use `index_of` there."""
        return None

    def for_programs(self, *, cells_given: bool = False) -> "Archive":
        """Return the archive with the arrays that its search in compiled programs needs.

        Args:
            cells_given: Whether `index_on_host` finds the cells if it can. This is called before
                its first call, so that it can prepare itself.
        """
        return self

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """Return 1 minus the mean squared error between measures and the centers of their cells.

        It is the objective of searches that evaluate measures only.
        """
        return 1.0 - jnp.mean(jnp.square(measures - self.centers_of(cells)), axis=1)


def field_specs(fields: FieldSpecs | None) -> dict[str, jax.ShapeDtypeStruct]:
    """Check extra fields and return them as shapes with dtypes; a shape alone means float32."""
    specs: dict[str, jax.ShapeDtypeStruct] = {}
    checks.instance("fields", {} if fields is None else fields, Mapping, "Give {name: shape}.")
    for name, spec in (fields or {}).items():
        good = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
        checks.expect(
            good and name not in RESERVED_NAMES,
            "fields",
            "names that are identifiers other than Python's keywords and "
            f"{', '.join(sorted(RESERVED_NAMES))}",
            checks.short(name),
        )
        specs[name] = _field_spec(name, spec)
    for name in specs:
        checks.expect(
            not _is_column_of(name, ("measures", "solution", *specs)),
            "fields",
            "names that do not clash with the columns name_0, name_1, ... of arrays",
            repr(name),
        )
    return specs


def _field_spec(name: str, spec: Any) -> jax.ShapeDtypeStruct:
    field = f"fields['{name}']"
    if isinstance(spec, jax.ShapeDtypeStruct):
        checks.expect(
            str(spec.dtype) in _DTYPES,
            field,
            f"one of the dtypes {', '.join(_DTYPES)}",
            spec.dtype,
            "JAX narrows 64 bits: use int32 or float32.",
        )
        return spec
    sizes = spec if isinstance(spec, Sequence) and not isinstance(spec, str) else (spec,)
    fix = "Give a shape, such as () or (28, 28), or a jax.ShapeDtypeStruct."
    shape = tuple(checks.integer(field, size, minimum=0, fix=fix) for size in sizes)
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def field_rows(name: str, value: Any, batch: int, spec: jax.ShapeDtypeStruct) -> np.ndarray:
    """Return the values of a field for a batch, after checking that its dtype can hold them."""
    dtype = np.dtype(spec.dtype)
    shape = (batch, *spec.shape)
    if dtype.kind == "b":
        array = checks.as_numpy(value)
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


def checked_measure_names(
    names: Sequence[str] | None, measure_dim: int, fields: Iterable[str]
) -> tuple[str, ...]:
    """Check names of measures, which are columns of tables; empty for ``None``."""
    fix = "Give one name for each measure: measure_names=('speed', 'height')."
    is_list = names is None or (np.iterable(names) and hasattr(names, "__len__"))
    checks.expect(is_list, "measure_names", "a list of texts", checks.short(names), fix)
    if names is None or len(names) == 0:
        return ()
    is_text = not isinstance(names, str) and all(isinstance(name, str) for name in names)
    checks.expect(is_text, "measure_names", "a list of texts", checks.short(names), fix)
    got = f"{len(names)} names"
    checks.expect(len(names) == measure_dim, "measure_names", f"{measure_dim} names", got, fix)
    for name in names:
        sound = len(name.strip()) > 0 and len(name) <= _LONGEST_NAME and name.isprintable()
        one_line = f"texts of 1 to {_LONGEST_NAME} printable characters"
        checks.expect(sound, "measure_names", one_line, checks.short(name))
        taken = name in RESERVED_NAMES or name in fields
        taken = taken or _is_column_of(name, ("measures", "solution"))
        other = "names that do not clash with other columns of the table of elites"
        checks.expect(not taken, "measure_names", other, repr(name), "Choose another name.")
    checks.expect(
        len(set(names)) == len(names), "measure_names", "different names", checks.short(names)
    )
    return tuple(names)


def measure_labels(names: tuple[str, ...], measure_dim: int) -> tuple[str, ...]:
    """Return labels for the axes of figures: the names, or ``measure 1``, ``measure 2``, ...

    >>> measure_labels((), 2), measure_labels(("speed", "height"), 2)
    (('measure 1', 'measure 2'), ('speed', 'height'))
    """
    return names or tuple(f"measure {number + 1}" for number in range(measure_dim))


def _is_column_of(name: str, arrays: Iterable[str]) -> bool:
    """Whether tables give this name to one number of an array: ``name_0``, ``name_1``, ..."""
    stem, _, number = name.rpartition("_")
    return number.isdigit() and stem in arrays
