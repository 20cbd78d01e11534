"""Conversion of pyribs' archives to gloam's elites and back."""

from typing import Any

import jax
import numpy as np

from gloam._tools import checks
from gloam._tools.warn import warn
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.interop.tables import elites_from_arrays

# Fields of every pyribs archive.
_STANDARD_FIELDS = ("solution", "objective", "measures", "threshold", "index")


def from_ribs(archive: Any) -> Elites:
    """Return the elites of a pyribs archive, each in the cell that it has there.

    ``archive.f_min`` is pyribs' ``qd_score_offset``, so that QD scores agree. 64-bit numbers become
    float32 and int32, and solutions become flat rows. The thresholds of CMA-MAE are left out.

    Args:
        archive: A ``ribs.archives.GridArchive`` or ``CVTArchive``, with or without extra fields.
    """
    peers = _archives()
    expected = "a GridArchive or a CVTArchive of pyribs"
    kinds = (peers.GridArchive, peers.CVTArchive)
    checks.expect(isinstance(archive, kinds), "archive", expected, type(archive).__name__)
    data = archive.data()
    extra = [name for name in archive.field_list if name not in _STANDARD_FIELDS]
    fields = {name: np.asarray(data[name]) for name in extra}
    specs = {name: _spec(name, values) for name, values in fields.items()}
    settings: Any = {"f_min": float(archive.qd_score_offset), "fields": specs}
    bounds = archive.lower_bounds, archive.upper_bounds
    if isinstance(archive, peers.GridArchive):
        ours: Archive = GridArchive(tuple(int(n) for n in archive.dims), *bounds, **settings)
    else:
        ours = CVTArchive(np.asarray(archive.centroids), *bounds, **settings)
    solutions = np.asarray(data["solution"])
    return elites_from_arrays(
        ours,
        solutions.reshape(len(solutions), -1),
        data["objective"],
        data["measures"],
        cells=np.asarray(data["index"], np.int64),
        fields=fields,
    )


def to_ribs(elites: Elites, **settings: Any) -> Any:
    """Return a pyribs archive with the same cells, elites and fields, in float32.

    Elites are added by its ``add``. pyribs shifts the borders of a grid by its ``epsilon``, so an
    elite on a border may end up in another cell; a warning gives the number of these.

    Args:
        elites: Elites of a `gloam.GridArchive`, or of a `gloam.CVTArchive` with the Euclidean
            metric and flat measures.
        settings: Further arguments of pyribs' archive, such as ``learning_rate`` and
            ``threshold_min`` for CMA-MAE, or ``seed``.
    """
    peers, ours = _archives(), elites.archive
    settings = {"dtype": np.float32, "qd_score_offset": elites.f_min} | settings
    lower, upper = np.asarray(ours.lower, float), np.asarray(ours.upper, float)
    shared: Any = {
        "solution_dim": elites.store.solutions.shape[1],
        "ranges": list(zip(lower, upper, strict=True)),
        "extra_fields": {n: (spec.shape, np.dtype(spec.dtype)) for n, spec in ours.fields.items()},
    }
    if isinstance(ours, GridArchive):
        theirs = peers.GridArchive(dims=ours.shape, **shared, **settings)
    else:
        expected = "a GridArchive or a CVTArchive with the Euclidean metric"
        got = f"{type(ours).__name__} ({getattr(ours, 'metric', '')})"
        fits = isinstance(ours, CVTArchive) and ours.metric == "euclidean"
        checks.expect(fits, "archive", expected, got, "pyribs uses Euclidean distances.")
        cvt: Any = ours
        theirs = peers.CVTArchive(centroids=np.asarray(cvt.centroids), **shared, **settings)
    if len(elites) == 0:
        return theirs
    fields = {name: elites.field(name) for name in ours.fields}
    theirs.add(elites.solutions, elites.objectives, elites.flat_measures, **fields)
    moved = int(np.sum(theirs.index_of(elites.flat_measures) != elites.cells))
    if moved:
        warn(
            f"{moved} of {len(elites)} elites lie on a border and are in another cell of the "
            f"pyribs archive, which has {len(theirs)} elites.",
        )
    return theirs


def _archives() -> Any:
    try:
        import ribs.archives  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"This needs pyribs ({error}). Run: pip install 'gloam[ribs]'") from error
    return ribs.archives


def _spec(name: str, values: np.ndarray) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a field, with 32 bits for 64."""
    narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
    kind = str(values.dtype)
    fix = "Leave the field out: gloam supports numbers and booleans."
    checks.expect(values.dtype.kind in "fiub", f"field '{name}'", "numbers", kind, fix)
    return jax.ShapeDtypeStruct(values.shape[1:], np.dtype(narrow.get(kind, kind)))
