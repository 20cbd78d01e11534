"""Elites as arrays, as tables of pandas and as Parquet files, out and in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.archives.archive import field_rows
from gloam.archives.store import add, empty_store
from gloam.files import write_table
from gloam.records import Batch

if TYPE_CHECKING:
    import pandas as pd

_add = jax.jit(add)


def elites_to_arrays(elites: Elites) -> dict[str, np.ndarray]:
    """The elites as NumPy arrays: ``cells``, ``objectives``, ``measures``, ``solutions``, fields.

    >>> import gloam
    >>> archive = gloam.GridArchive((2,), 0, 1)
    >>> elites = elites_from_arrays(archive, [[7.0], [8.0]], [1.0, 2.0], [[0.1], [0.2]])
    >>> elites_to_arrays(elites)["solutions"].tolist()
    [[8.0]]
    """
    arrays = {
        "cells": elites.cells,
        "objectives": elites.objectives,
        "measures": elites.measures,
        "solutions": elites.solutions,
    }
    return arrays | {name: elites.field(name) for name in elites.store.fields}


def elites_from_arrays(
    archive: Archive,
    solutions: Any,
    objectives: Any,
    measures: Any,
    *,
    cells: Any = None,
    fields: Mapping[str, Any] | None = None,
) -> Elites:
    """Elites from solutions that were found elsewhere: the best of each cell stays.

    Args:
        archive: The division into cells.
        solutions: ``(n, sol)`` array.
        objectives: ``(n,)`` array.
        measures: ``(n, meas)`` array, or in the archive's shape.
        cells: ``(n,)`` cell of each solution. Default: where the archive puts its measures.
        fields: The archive's extra fields, ``(n, ...)`` each.
    """
    solutions = checks.finite_array("solutions", solutions, ndim=2)
    number = len(solutions)
    objectives = checks.finite_array("objectives", objectives, ndim=1)
    rows = checks.finite_array("measures", measures, ndim=2, or_more=True)
    shapes = checks.measure_shapes(number, archive.measure_shape)
    expected = f"shape {checks.one_of(shapes)}"
    checks.expect(rows.shape in shapes, "measures", expected, f"shape {rows.shape}")
    checks.expect(
        objectives.shape == (number,),
        "objectives",
        f"{number} numbers, one for each solution",
        f"shape {objectives.shape}",
    )
    points = jnp.asarray(rows.reshape(number, archive.measure_dim), jnp.float32)
    places = archive.index_of(points) if cells is None else _checked_cells(cells, number, archive)
    given = dict(fields or {})
    checks.same_names("fields", archive.fields, given)
    kept = {n: field_rows(n, given[n], number, spec) for n, spec in archive.fields.items()}
    batch = Batch(
        jnp.asarray(solutions, jnp.float32),
        jnp.asarray(objectives, jnp.float32),
        points,
        jnp.asarray(places, jnp.int32),
        jnp.ones(number, bool),
        {name: jnp.asarray(values) for name, values in kept.items()},
    )
    store = empty_store(archive.num_cells, solutions.shape[1], archive.measure_dim, archive.fields)
    return Elites(archive, _add(store, batch)[0])


def elites_from_pandas(archive: Archive, table: "pd.DataFrame") -> Elites:
    """Elites from a table as `Elites.to_pandas` gives it.

    The columns are ``objective``, ``measures_0``, ..., ``solution_0``, ..., and those of the
    archive's fields. With a column ``cell`` it says where the elites are.
    """
    columns = [str(name) for name in table.columns]

    def block(name: str) -> np.ndarray:
        numbered = [f"{name}_{i}" for i in range(len(columns))]
        found = [column for column in numbered if column in columns]
        fix = f"The columns are {', '.join(columns[:8])}..."
        whole = found == numbered[: len(found)] and len(found) > 0
        checks.expect(whole, "table", f"columns {name}_0, {name}_1, ...", "other columns", fix)
        return table[found].to_numpy()

    checks.expect("objective" in columns, "table", "a column 'objective'", "none")
    fields = {}
    for name, spec in archive.fields.items():
        values = table[name].to_numpy() if name in columns else block(name)
        fields[name] = values.reshape(len(table), *spec.shape)
    return elites_from_arrays(
        archive,
        block("solution"),
        table["objective"].to_numpy(),
        block("measures"),
        cells=table["cell"].to_numpy() if "cell" in columns else None,
        fields=fields,
    )


def elites_to_parquet(elites: Elites, path: str | os.PathLike) -> None:
    """Write the table of the elites as a Parquet file; an existing file is not replaced."""
    target = Path(path)
    fix = "Choose another name, or move the file away."
    checks.expect(not target.exists(), "path", "a new file", f"'{target}', which exists", fix)
    write_table(target, elites.to_pandas())


def elites_from_parquet(archive: Archive, path: str | os.PathLike) -> Elites:
    """Elites from a Parquet file as `elites_to_parquet` writes it."""
    import pandas as pd

    return elites_from_pandas(archive, pd.read_parquet(checks.existing_file("path", path)))


def _checked_cells(cells: Any, number: int, archive: Archive) -> np.ndarray:
    places = np.asarray(cells)
    good = places.shape == (number,) and np.issubdtype(places.dtype, np.integer)
    expected = f"{number} whole numbers from 0 to {archive.num_cells - 1}"
    inside = good and bool(((places >= 0) & (places < archive.num_cells)).all())
    checks.expect(inside, "cells", expected, checks.short(cells))
    return places
