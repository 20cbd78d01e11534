"""The Voronoi cells of centroids in the plane, as polygons."""

import numpy as np
from jaxtyping import Float

from gloam.archives import Archive, CVTArchive

# More polygons take seconds to find, and are hardly larger than a pixel.
_MOST = 20_000


def has_polygons(archive: Archive) -> bool:
    """Whether the cells of an archive are drawn as polygons."""
    return (
        isinstance(archive, CVTArchive)
        and archive.metric == "euclidean"
        and archive.measure_dim == 2
        and archive.num_cells <= _MOST
    )


def cell_polygons(
    centroids: Float[np.ndarray, "cells 2"],
) -> list[Float[np.ndarray, "corners 2"]]:
    """The corners of each cell. Cells at the border reach far beyond the centroids."""
    from scipy.spatial import Voronoi

    points = np.asarray(centroids, np.float64)
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    # Among points far outside no cell is unbounded, and within the picture none of theirs shows.
    around = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]
    far = middle + 20 * extent * np.array(around)
    found = Voronoi(np.concatenate([points, far]))
    regions = [found.regions[found.point_region[cell]] for cell in range(len(points))]
    return [found.vertices[region] for region in regions]
