"""How a filled archive shows itself in notebooks: a few figures and a small map."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from gloam import drawing as cards
from gloam.archives.archive import Archive
from gloam.archives.cvt_archive import CVTArchive
from gloam.archives.grid_archive import GridArchive
from gloam.drawing import PrincipalComponents

if TYPE_CHECKING:
    from gloam.archives.elites import Elites


# Bins of a map along each side, elites that it is made of, and points that turn its axes.
_SIDE, _MOST, _SAMPLE = 80, 20_000, 200


def elites_card(elites: "Elites") -> str:
    """HTML of a filled archive."""
    title = f"Elites of a {type(elites.archive).__name__}"
    figures = archive_figures(elites) | {
        "measures": ", ".join(elites.archive.measure_names) or f"{elites.archive.measure_dim}",
        "solutions": f"{elites.store.solutions.shape[1]:,} numbers each",
    }
    return cards.card(title, figures, [thumbnail(elites)] if len(elites) else [])


def archive_figures(elites: "Elites") -> dict[str, str]:
    """Number of elites, QD score, coverage and best objective, as text."""
    return {
        "elites": f"{len(elites):,} of {elites.archive.num_cells:,} cells",
        "QD score": f"{elites.qd_score:,.2f}",
        "coverage": f"{elites.coverage:.1%}",
        "best objective": f"{elites.best_objective:.4g}" if len(elites) else "none",
    }


def thumbnail(elites: "Elites") -> str:
    """A small map of the archive as an inline picture."""
    return cards.picture(thumbnail_pixels(elites), "Map of the archive, coloured by objective")


def thumbnail_pixels(elites: "Elites") -> UInt8[np.ndarray, "height width 3"]:
    """A small map: cells of up to two measures in their places, else principal components."""
    archive, objectives = elites.archive, np.asarray(elites.store.objectives)
    if isinstance(archive, GridArchive) and archive.measure_dim <= 2:
        values = objectives.reshape(archive.shape if archive.measure_dim == 2 else (-1, 1))
        values = _reduced(values.astype(np.float64))
        wide = archive.measure_dim == 1
        return cards.shaded(values).repeat(max(1, len(values) // 8) if wide else 1, axis=0)
    if _has_near_centroids(archive):
        return cards.shaded(_nearest(archive, objectives))
    cells = np.flatnonzero(np.isfinite(objectives))
    if len(cells) > _MOST:
        cells = np.random.default_rng(0).choice(cells, _MOST, replace=False)
    points = np.asarray(elites.store.measures)[cells].astype(np.float64)
    if archive.measure_dim > 2:
        points = PrincipalComponents(points, sample=_SAMPLE).place(points)
    elif archive.measure_dim == 1:
        points = np.stack([points[:, 0], np.zeros(len(points))], axis=1)
    bins = int(np.clip(round(len(cells) ** 0.5), 4, _SIDE // 2))
    return cards.shaded(cards.highest_by_bin(points, objectives[cells], bins))


def _reduced(values: Float[np.ndarray, "x y"]) -> Float[np.ndarray, "fewer_x fewer_y"]:
    """The highest value of each block of cells, at most so many blocks along each side."""
    steps = [-(-size // _SIDE) for size in values.shape]
    spare = [(0, -size % step) for size, step in zip(values.shape, steps, strict=True)]
    whole = np.pad(values, spare, constant_values=-np.inf)
    x, y = (size // step for size, step in zip(whole.shape, steps, strict=True))
    return whole.reshape(x, steps[0], y, steps[1]).max(axis=(1, 3))


def _has_near_centroids(archive: Archive) -> bool:
    return (
        isinstance(archive, CVTArchive)
        and archive.metric == "euclidean"
        and archive.measure_dim == 2
        and archive.num_cells <= _MOST
    )


def _nearest(archive: Archive, objectives: Float[np.ndarray, " cells"]) -> Float[np.ndarray, "x y"]:
    """The objective of the nearest centroid at each place between the bounds."""
    from scipy.spatial import KDTree  # lazily: `import gloam` need not wait for it

    assert isinstance(archive, CVTArchive)
    lower, upper = np.asarray(archive.lower), np.asarray(archive.upper)
    steps = (np.arange(_SIDE) + 0.5) / _SIDE
    x, y = (low + steps * (high - low) for low, high in zip(lower, upper, strict=True))
    places = np.stack(np.meshgrid(x, y, indexing="ij"), axis=2).reshape(-1, 2)
    cells = KDTree(np.asarray(archive.centroids)).query(places)[1]
    return objectives[cells].astype(np.float64).reshape(_SIDE, _SIDE)
