"""A smaller picture of a large archive, for reports."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from gloam.archives import GridArchive
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.packing import packed
from gloam.explorer.projections import project

if TYPE_CHECKING:
    from gloam.explorer.report_parts import Parts

LARGE = 200_000
"""Cells beyond which a report has a smaller picture of the archive."""
_SAMPLE = 100_000


def add_coarse_archive(
    parts: "Parts", run: OpenedRun, address: str, described: dict[str, Any]
) -> dict[str, Any]:
    """Add the elites of the first seed to a report: the best of blocks, or a sample.

    Returns:
        The description of the archive that the page gets.
    """
    seed = run.config.seeds[0]
    rows = run.elites(seed)
    about = {"iteration": rows.iteration, "seed": seed}
    name = f"{address}/elites?seed={seed}"
    if run.is_plane_grid:
        assert isinstance(run.archive, GridArchive)
        shape, side, cells, best = best_of_blocks(run.archive.shape, rows.cells, rows.objectives)
        arrays = {"cell": cells.astype(np.int32), "objective": rows.objectives[best]}
        arrays["original"] = rows.cells[best].astype(np.int32)
        parts.add_arrays(name, packed(arrays, about))
        told = f"the best elite of each block of {side} × {side} cells"
        coarse = {"shape": list(shape), "num_cells": int(np.prod(shape)), "coarse": told}
        return described | coarse
    count = min(_SAMPLE, len(rows.cells))
    chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
    cells = rows.cells[chosen].astype(np.int32)
    parts.add_arrays(name, packed({"cell": cells, "objective": rows.objectives[chosen]}, about))
    projection = described["projections"][0]["name"]
    spots, _, names = project(run, projection, seed)
    places = spots[cells].astype(np.float32)
    arrays = {"x": places[:, 0], "y": places[:, 1], "cell": cells}
    parts.add_arrays(f"{address}/map?by={projection}", packed(arrays, names))
    return described | {"coarse": f"{count:,} of {len(rows.cells):,} elites, chosen at random"}


def best_of_blocks(
    shape: tuple[int, ...], cells: Int[np.ndarray, " n"], objectives: Float[np.ndarray, " n"]
) -> tuple[tuple[int, int], int, Int[np.ndarray, " blocks"], Int[np.ndarray, " blocks"]]:
    """The best elite of each square block of a grid.

    Returns:
        Shape of the grid of blocks, side of a block, the filled blocks, and the row of the best
        elite of each.

    >>> best_of_blocks((1000, 2), np.array([0, 1, 1998]), np.array([1.0, 3.0, 2.0]))[1:]
    (2, array([  0, 499]), array([1, 2]))
    """
    side = int(np.ceil(max(shape) / 500))
    small = (-(-shape[0] // side), -(-shape[1] // side))
    first, second = np.divmod(cells, shape[1])
    blocks = (first // side) * small[1] + second // side
    order = np.lexsort((-objectives, blocks))
    found, places = np.unique(blocks[order], return_index=True)
    return small, side, found, order[places]
