"""pyribs: its archives as gloam's elites and back, and a discount model that trains in JAX.

`DiscountModelManager` takes the place of ``ribs.discount_models.DiscountModelManager``.
"""

import warnings
from typing import Any

import jax
import numpy as np

from gloam import checks
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.interop.ribs_discount import DiscountModelManager as DiscountModelManager
from gloam.interop.tables import elites_from_arrays

# Fields that every archive of pyribs has.
_OWN = ("solution", "objective", "measures", "threshold", "index")


def _archives() -> Any:
    try:
        import ribs.archives  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"interop: expected pyribs, got none ({error}). "
            "Install it by: pip install 'gloam[ribs]'"
        ) from error
    return ribs.archives


def from_ribs(archive: Any) -> Elites:
    """The elites of a pyribs archive, each in the cell that it has there.

    ``archive.f_min`` is pyribs' ``qd_score_offset``, so that QD scores are the same. Numbers of 64
    bits become float32 and int32, and solutions with a shape flat rows. Thresholds of CMA-MAE,
    which guide a search and are no part of an elite, are left out.

    Args:
        archive: A ``ribs.archives.GridArchive`` or ``CVTArchive``, also with extra fields.
    """
    peers = _archives()
    expected = "a GridArchive or a CVTArchive of pyribs"
    kinds = (peers.GridArchive, peers.CVTArchive)
    checks.expect(isinstance(archive, kinds), "archive", expected, type(archive).__name__)
    data = archive.data()
    extra = {name: np.asarray(data[name]) for name in archive.field_list if name not in _OWN}
    fields = {name: _spec(name, values) for name, values in extra.items()}
    settings: Any = {"f_min": float(archive.qd_score_offset), "fields": fields}
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
        fields=extra,
    )


def to_ribs(elites: Elites, **settings: Any) -> Any:
    """A pyribs archive with the same cells, elites and fields, in float32.

    Elites are given to its ``add``. pyribs shifts the borders of a grid by its ``epsilon``, so that
    an elite on a border may get another cell; a warning says how many did.

    Args:
        elites: Elites of a `gloam.GridArchive`, or of a `gloam.CVTArchive` with the Euclidean
            metric and flat measures.
        settings: Further arguments of pyribs' archive, such as ``learning_rate`` and
            ``threshold_min`` for CMA-MAE, or ``seed``.
    """
    peers, ours = _archives(), elites.archive
    settings = {"dtype": np.float32, "qd_score_offset": ours.f_min} | settings
    settings["extra_fields"] = {
        name: (spec.shape, np.dtype(spec.dtype)) for name, spec in ours.fields.items()
    }
    size = elites.store.solutions.shape[1]
    box = list(zip(np.asarray(ours.lower, float), np.asarray(ours.upper, float), strict=True))
    if isinstance(ours, GridArchive):
        theirs = peers.GridArchive(solution_dim=size, dims=ours.shape, ranges=box, **settings)
    else:
        fits = isinstance(ours, CVTArchive) and ours.metric == "euclidean"
        fix = "pyribs compares by Euclidean distances."
        expected = "a GridArchive or a CVTArchive with the Euclidean metric"
        got = f"{type(ours).__name__} ({getattr(ours, 'metric', '')})"
        checks.expect(fits, "archive", expected, got, fix)
        points: Any = ours
        theirs = peers.CVTArchive(
            solution_dim=size, centroids=np.asarray(points.centroids), ranges=box, **settings
        )
    if len(elites) == 0:
        return theirs
    fields = {name: elites.field(name) for name in ours.fields}
    theirs.add(elites.solutions, elites.objectives, elites.flat_measures, **fields)
    moved = int(np.sum(theirs.index_of(elites.flat_measures) != elites.cells))
    if moved:
        warnings.warn(
            f"{moved} of {len(elites)} elites lie on a border and are in another cell of the "
            f"archive of pyribs, which has {len(theirs)} elites.",
            stacklevel=2,
        )
    return theirs


def _spec(name: str, values: np.ndarray) -> jax.ShapeDtypeStruct:
    """A field of pyribs as ours: with 32 bits where it has 64."""
    narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
    kind = str(values.dtype)
    fix = "Leave the field out: gloam keeps numbers and booleans."
    checks.expect(values.dtype.kind in "fiub", f"field '{name}'", "numbers", kind, fix)
    return jax.ShapeDtypeStruct(values.shape[1:], np.dtype(narrow.get(kind, kind)))
