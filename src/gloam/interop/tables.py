"""Elites as arrays, DataFrames and Parquet files, and back."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from gloam._tools import checks, files, parquet
from gloam.archives import Archive, Elites
from gloam.archives.archive import field_rows
from gloam.archives.store import filled_store
from gloam.archives.tables import EliteColumns
from gloam.evaluation import measure_shapes
from gloam.spaces import Form, Space

if TYPE_CHECKING:
    import pandas as pd


def elites_to_arrays(elites: Elites) -> dict[str, np.ndarray]:
    """Return ``cells``, ``objectives``, ``measures``, ``solutions`` and fields as NumPy arrays.

    >>> import gloam
    >>> archive = gloam.GridArchive((2,), 0, 1)
    >>> elites = elites_from_arrays(archive, [[7.0], [8.0]], [1.0, 2.0], [[0.1], [0.2]])
    >>> elites_to_arrays(elites)["solutions"].tolist()
    [[8.0]]
    """
    arrays = {name: getattr(elites, name) for name in ("cells", "objectives", "measures")}
    fields = {name: elites.field(name) for name in elites.store.fields}
    return arrays | {"solutions": elites.solutions} | fields


def elites_from_arrays(
    archive: Archive,
    solutions: Any,
    objectives: Any,
    measures: Any,
    *,
    cells: Any = None,
    fields: Mapping[str, Any] | None = None,
) -> Elites:
    """Build elites from solutions of another program, keeping the best of each cell.

    Args:
        archive: The archive to fill.
        solutions: ``(n, sol)`` array.
        objectives: ``(n,)`` array.
        measures: ``(n, meas)`` array, or in the archive's shape.
        cells: ``(n,)`` cell of each solution. Default: the cell of its measures.
        fields: The archive's extra fields, ``(n, ...)`` each.
    """
    solutions = checks.finite_array("solutions", solutions, ndim=2)
    number = len(solutions)
    objectives = checks.finite_array("objectives", objectives, ndim=1)
    measures = checks.finite_array("measures", measures, ndim=2, or_more=True)
    shapes = measure_shapes(number, archive.measure_shape)
    expected = f"shape {checks.one_of(shapes)}"
    checks.expect(measures.shape in shapes, "measures", expected, f"shape {measures.shape}")
    expected, got = f"{number} numbers, one for each solution", f"shape {objectives.shape}"
    checks.expect(objectives.shape == (number,), "objectives", expected, got)
    points = jnp.asarray(measures.reshape(number, archive.measure_dim), jnp.float32)
    if cells is not None:
        cells = checks.real_array("cells", cells, "whole numbers")
        fits = cells.shape == (number,) and np.issubdtype(cells.dtype, np.integer)
        fits = fits and bool(((cells >= 0) & (cells < archive.num_cells)).all())
        expected = f"{number} whole numbers from 0 to {archive.num_cells - 1}"
        checks.expect(fits, "cells", expected, checks.short(cells))
    given = dict(fields or {})
    checks.same_names("fields", archive.fields, given)
    rows = {n: field_rows(n, given[n], number, s) for n, s in archive.fields.items()}
    cells = archive.index_of(points) if cells is None else cells.astype(np.int32)
    return Elites(archive, filled_store(archive, solutions, objectives, points, cells, rows))


def elites_from_pandas(archive: Archive, table: "pd.DataFrame", form: Form | None = None) -> Elites:
    """Build elites from a table in the format of `Elites.to_pandas`.

    Args:
        archive: The archive to fill.
        table: Table with columns ``objective``, ``measures_0``, ... or the archive's measure names,
            ``solution_0``, ..., the archive's fields, and optionally ``cell``.
        form: The space whose variables are the columns, in the place of ``solution_0``, ...
    """
    columns = EliteColumns(table)
    objectives, measures, fields = columns.results(archive)
    elites = elites_from_arrays(
        archive,
        columns.solutions(form),
        objectives,
        measures,
        cells=columns.cells(),
        fields=fields,
    )
    return Elites(archive, elites.store, form=form)


def elites_to_parquet(elites: Elites, path: str | os.PathLike) -> None:
    """Write the elites as a Parquet file; existing files are not overwritten."""
    target = Path(path)
    fix = "Choose another name, or move the file away."
    checks.expect(not target.exists(), "path", "a new file", f"'{target}', which exists", fix)
    table = elites.to_pandas()
    for name, column in table.items():
        values = column.tolist() if column.dtype.kind == "O" else []
        kinds = {type(value) for value in values} - {type(None)}  # which is an empty field
        if len(kinds) > 1:  # choices of several types
            table[name] = [None if value is None else str(value) for value in values]
    files.write_table(target, table)


def elites_from_parquet(
    archive: Archive,
    path: str | os.PathLike,
    form: Form | None = None,
    *,
    max_bytes: int | None = None,
) -> Elites:
    """Read elites from a Parquet file in the format of `elites_to_parquet`.

    Args:
        archive: The archive to fill.
        path: The file; it need not be trusted.
        form: The space whose variables are the columns, as for `elites_from_pandas`.
        max_bytes: Size of the largest table that is read. Default: half of the memory.

    Raises:
        ValueError: The file is damaged, too large, or has other columns.
    """
    import pyarrow as pa

    file = checks.existing_file("path", path)
    try:
        with parquet.opened(file) as opened:
            names = [name for name, _ in form.places] if isinstance(form, Space) else []
            texts = {*names, *(f"solution_{name}" for name in names)}
            schema = opened.schema_arrow
            columns = [f.name for f in schema if parquet.is_number(f.type) or f.name in texts]
            parquet.declared(file, columns, files.byte_limit(max_bytes))
            read = opened.read(columns)
            read.validate(full=True)  # indices of a damaged dictionary may be out of range
            table = read.to_pandas()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"path: expected a Parquet file of elites, got '{file}' ({reason}). Write it again by "
            "elites_to_parquet, or raise max_bytes if it is meant to be that large."
        ) from None
    return elites_from_pandas(archive, table, form)
