"""Small maps of archives for notebooks."""

import numpy as np
from jaxtyping import Float, Int, UInt8

from gloam._tools import drawing
from gloam.archives.archive import Archive
from gloam.archives.cvt_archive import CVTArchive
from gloam.archives.grid_archive import GridArchive
from gloam.archives.store import Store

# Number of bins along each side, of elites shown, and of points that determine the axes.
_SIDE, _SHOWN, _SAMPLE = 80, 20_000, 200


def thumbnail(archive: Archive, store: Store) -> str:
    """Return a small map of the archive as an inline picture."""
    pixels = thumbnail_pixels(archive, store)
    return drawing.picture(pixels, "Map of the archive, colored by objective")


def thumbnail_pixels(archive: Archive, store: Store) -> UInt8[np.ndarray, "height width 3"]:
    """Draw a small map: up to two measures as they are, more as two principal components."""
    objectives = np.asarray(store.objectives, np.float64)
    if isinstance(archive, GridArchive) and archive.measure_dim == 1:
        pixels = drawing.shaded(_highest_of_blocks(objectives[:, None]))
        return pixels.repeat(max(1, pixels.shape[1] // 8), axis=0)
    if isinstance(archive, GridArchive) and archive.measure_dim == 2:
        return drawing.shaded(_highest_of_blocks(objectives.reshape(archive.shape)))
    few = archive.measure_dim == 2 and archive.num_cells <= _SHOWN
    if few and isinstance(archive, CVTArchive) and archive.metric == "euclidean":
        return drawing.shaded(objectives[_nearest_cells(archive)])
    cells = np.flatnonzero(np.isfinite(objectives))
    if len(cells) > _SHOWN:
        cells = np.random.default_rng(0).choice(cells, _SHOWN, replace=False)
    points = np.asarray(store.measures)[cells].astype(np.float64)
    if archive.measure_dim > 2:
        points = drawing.PrincipalComponents(points, sample=_SAMPLE).place(points)
    elif archive.measure_dim == 1:
        points = np.stack([points[:, 0], np.zeros(len(points))], axis=1)
    bins = int(np.clip(round(len(cells) ** 0.5), 4, _SIDE // 2))
    return drawing.shaded(drawing.highest_by_bin(points, objectives[cells], bins))


def _highest_of_blocks(values: Float[np.ndarray, "x y"]) -> Float[np.ndarray, "fewer_x fewer_y"]:
    """Return the highest value of each block of cells; at most `_SIDE` blocks on each side."""
    steps = [-(-size // _SIDE) for size in values.shape]
    padding = [(0, -size % step) for size, step in zip(values.shape, steps, strict=True)]
    padded = np.pad(values, padding, constant_values=-np.inf)
    x, y = (size // step for size, step in zip(padded.shape, steps, strict=True))
    return padded.reshape(x, steps[0], y, steps[1]).max(axis=(1, 3))


def _nearest_cells(archive: CVTArchive) -> Int[np.ndarray, "x y"]:
    """Return the cell at each pixel of a map between the bounds of two measures."""
    from scipy.spatial import KDTree  # lazily: `import gloam` need not wait for it

    lower, upper = np.asarray(archive.lower), np.asarray(archive.upper)
    steps = (np.arange(_SIDE) + 0.5) / _SIDE
    x, y = (low + steps * (high - low) for low, high in zip(lower, upper, strict=True))
    pixels = np.stack(np.meshgrid(x, y, indexing="ij"), axis=2)
    return np.asarray(KDTree(np.asarray(archive.centroids)).query(pixels)[1])
