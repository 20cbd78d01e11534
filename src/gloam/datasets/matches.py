"""`Matches`: the elites of a filled archive compared with the items of a dataset.

Coverage alone counts a cell as filled however far its elite is from the item. Matches have an
elite for every item, its distance, and the variance of the items that it explains.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gloam._tools import checks
from gloam.archives import CVTArchive, Elites
from gloam.datasets import rows
from gloam.datasets.dataset import Dataset

if TYPE_CHECKING:
    import pandas as pd  # imported where it is used: it takes half a second

Metric = Literal["euclidean", "cosine"]
Order = Literal["explained", "distance", "objective", "label", "item"]

# Columns that each order sorts by, and whether they ascend.
_SORTED_BY: dict[Order, dict[str, bool]] = {
    "explained": {"explained": False},
    "distance": {"distance": True},
    "objective": {"filled": False, "objective": False},
    "label": {"label": True, "distance": True},
    "item": {"item": True},
}
_QUERIES, _POINTS = 2048, 4096  # rows that are compared at a time
_SAMPLE = 4096  # elites whose objectives are compared with their closeness


class Matches:
    """The items of a dataset, each with the nearest elite, or the best one within a distance.

    If the archive has a distance (``dataset.archive(within=...)``) and the search an objective, the
    elite of an item is the best one within that distance, and the nearest if there is none. It may
    be that of another cell, also for an item whose own cell is filled.

    Args:
        elites: Elites of a search, for instance ``result.elites``.
        dataset: The dataset whose `Dataset.archive` was searched.

    Example:
        >>> import gloam
        >>> data = Dataset(np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]), labels=["a", "a", "b"])
        >>> search = gloam.Search(gloam.MAPElites(data.archive(), np.zeros(2), 0.1, batch_size=2))
        >>> _ = search.ask()
        >>> search.tell(objectives=[1.0, 2.0], measures=[[0.0, 0.5], [1.0, 1.0]])
        >>> matches = Matches(search.elites(), data)
        >>> matches.table()[["item", "filled", "explained"]].round(2).values.tolist()
        [[1, True, 1.0], [0, True, 0.97], [2, False, -0.78]]
        >>> round(matches.explained, 3), matches.reached.tolist()
        (-0.152, [True, True, False])
        >>> matches.coverage(), matches.coverage(within=0.1)
        (0.6666666666666666, 0.3333333333333333)
    """

    def __init__(self, elites: Elites, dataset: Dataset):
        checks.instance("elites", elites, Elites, "Give result.elites or search.elites().")
        archive = elites.archive
        checks.instance("archive", archive, CVTArchive, "Use dataset.archive().")
        assert isinstance(archive, CVTArchive)
        checks.expect(
            archive.num_cells == len(dataset),
            "dataset",
            f"{archive.num_cells} items, one for each cell",
            f"{len(dataset)} items",
            "Give the dataset that the archive was built from.",
        )
        self.elites = elites
        self.dataset = dataset
        self.metric: Metric = archive.metric
        self._archive = archive

    @cached_property
    def filled(self) -> Bool[np.ndarray, " items"]:
        """Whether the cell of each item has an elite."""
        filled = np.zeros(len(self.dataset), bool)
        filled[self.elites.cells] = True
        return filled

    @cached_property
    def rows(self) -> Int[np.ndarray, " items"]:
        """Index of the elite of each item in ``elites.solutions``; -1 without elites."""
        if len(self.elites) == 0:
            return np.full(len(self.dataset), -1)
        nearest = _nearest(self.elites.flat_measures, self.dataset.items, self.metric)
        within = self._archive.within
        if within is None or is_closeness(self.elites):
            return nearest
        best = _best_within(self.elites, self.dataset.items, self.metric, within)
        return np.where(best < 0, nearest, best)

    @cached_property
    def distances(self) -> Float[np.ndarray, " items"]:
        """Distance from each item to its elite, by the archive's metric."""
        if len(self.elites) == 0:
            return np.full(len(self.dataset), np.inf, np.float32)
        return distances(self.metric, self.dataset.items, self.elites.flat_measures, self.rows)

    @cached_property
    def explained_by_item(self) -> Float[np.ndarray, " items"]:
        """Explained variance of each item: ``1 - |item - elite|^2 / |item - mean item|^2``.

        It is 1 if the elite equals the item, 0 if it is as near as the mean of all items, and
        negative if it is farther. With the cosine metric, all rows are scaled to length one.
        """
        return _explained(*self._squares)

    @property
    def explained(self) -> float:
        """Explained variance of all items: 1 minus the sum of their errors over that of the mean.

        Items whose cells are empty count, too. A search that found only the mean item scores 0.
        """
        error, spread = self._squares
        return float(1 - error.sum() / spread.sum())

    @property
    def reached(self) -> Bool[np.ndarray, " items"]:
        """Whether the elite of each item is within the archive's distance.

        If the archive has none: whether it is nearer than the mean item is. The search found no
        good solution for the other items; perhaps there is none.
        """
        within = self._archive.within
        if within is None:
            return self.explained_by_item > 0
        return self.filled | (self.distances <= within)

    @cached_property
    def _squares(self) -> tuple[Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
        """Squared distances from each item to its elite and to the mean item."""
        items = self.dataset.items
        mean = _mean_row(items, self.metric)
        both = self.distances, distances(self.metric, items, mean[None], np.zeros(len(items), int))
        # The squared distance of unit vectors is twice the cosine distance.
        power = 2 if self.metric == "euclidean" else 1
        error, spread = (distance.astype(np.float64) ** power for distance in both)
        return error, spread

    def table(self, by: Order = "explained") -> "pd.DataFrame":
        """Return a table with a row for each item, best first.

        Its columns are ``item``, ``name``, ``label``, ``filled`` (whether the item's own cell has
        an elite), ``row`` (the index of the item's elite in ``elites.solutions``), ``objective``
        of that elite, its ``distance``, the variance ``explained`` and ``reached``.

        Args:
            by: Column to sort by. By objective, items whose cells are empty come last.
        """
        import pandas as pd

        checks.expect(by in _SORTED_BY, "by", f"one of {', '.join(_SORTED_BY)}", repr(by))
        count, objectives = len(self.dataset), self.elites.objectives
        table = pd.DataFrame(
            {
                "item": np.arange(count),
                "name": self.dataset.names,
                "label": self.dataset.labels or [None] * count,
                "filled": self.filled,
                "row": self.rows,
                "objective": objectives[self.rows] if len(objectives) else np.nan,
                "distance": self.distances,
                "explained": self.explained_by_item,
                "reached": self.reached,
            }
        )
        columns = _SORTED_BY[by]
        ordered = table.sort_values(list(columns), ascending=list(columns.values()), kind="stable")
        return ordered.reset_index(drop=True)

    def coverage(self, within: float | None = None) -> float:
        """Return the share of filled cells, or of items with an elite ``within`` a distance."""
        return float(self._counted(within).sum()) / len(self.dataset)

    def coverage_by_label(self, within: float | None = None) -> "pd.DataFrame":
        """Return items, filled items, coverage and explained variance of each label.

        With ``within``, an item counts as filled if an elite is that near.
        """
        import pandas as pd

        checks.expect(self.dataset.labels is not None, "labels", "a dataset with labels", "none")
        names, group = np.unique(np.array(self.dataset.labels, object), return_inverse=True)
        by_item = (None, self._counted(within), *self._squares)
        items, filled, error, spread = (np.bincount(group, weights) for weights in by_item)
        return pd.DataFrame(
            {
                "label": names,
                "items": items,
                "filled": filled.astype(int),
                "coverage": filled / items,
                "explained": _explained(error, spread),
            }
        )

    def _counted(self, within: float | None) -> Bool[np.ndarray, " items"]:
        return self.filled if within is None else self.distances <= within

    def held_out(self, others: Dataset) -> "pd.DataFrame":
        """Return how close the elites come to items that were held out of the search.

        Returns:
            A row for each item of ``others``: its ``distance`` to the nearest elite, whose index
            is ``row``, and its ``floor``, the distance to the nearest item of the search. An
            archive whose elites match their own items exactly has distances equal to the floor.
        """
        import pandas as pd

        expected = f"items of shape {self.dataset.shape}"
        fits = others.shape == self.dataset.shape
        checks.expect(fits, "others", expected, f"shape {others.shape}")
        checks.expect(len(self.elites) > 0, "elites", "at least one elite", "none")
        measures, items = self.elites.flat_measures, self.dataset.items
        row = _nearest(measures, others.items, self.metric)
        nearest_item = _nearest(items, others.items, self.metric)
        return pd.DataFrame(
            {
                "name": others.names,
                "label": others.labels or [None] * len(others),
                "row": row,
                "distance": distances(self.metric, others.items, measures, row),
                "floor": distances(self.metric, others.items, items, nearest_item),
            }
        )


def _explained(
    error: Float[np.ndarray, " n"], spread: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return ``1 - error / spread``; for an item that is the mean item, 1 or minus infinity."""
    ratio = np.where(error > 0, np.inf, 0.0)
    return 1 - np.divide(error, spread, out=ratio, where=spread > 0)


def distances(
    metric: Metric,
    points: Float[np.ndarray, "n meas"],
    others: Float[np.ndarray, "m meas"],
    chosen: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Return the distance from each point to its ``chosen`` row of the others, as float32."""
    result = np.empty(len(points), np.float32)
    for block in rows.blocks(points):
        point, other = (row.astype(np.float64) for row in (points[block], others[chosen[block]]))
        if metric == "euclidean":
            result[block] = np.linalg.norm(point - other, axis=1)
        else:
            # A row of zeros (a black image) has no direction; its distance to every row is 1.
            cosine = (_unit(point) * _unit(other)).sum(axis=1)
            result[block] = np.clip(1 - cosine, 0.0, 2.0)
    return result


def _nearest(
    points: Float[np.ndarray, "n meas"], queries: Float[np.ndarray, "m meas"], metric: Metric
) -> Int[np.ndarray, " m"]:
    """Return the index of the nearest point to each query, the lowest of equals.

    The nearest point has the largest score ``(q - c).(p - c) - |p - c|^2 / 2`` for any ``c``; with
    the cosine metric, the largest product of unit vectors. Scores are computed in float64, which
    tells close points apart, and block by block: all of them would not fit into memory.
    """
    best, nearest = np.full(len(queries), -np.inf), np.zeros(len(queries), int)
    for start, block, scores, _ in _scored(points, queries, metric):
        _keep_best(best, nearest, start, block, scores)
    return nearest


def _best_within(
    elites: Elites, items: Float[np.ndarray, "n meas"], metric: Metric, within: float
) -> Int[np.ndarray, " n"]:
    """Return the index of the elite with the largest objective within a distance of each item.

    It is -1 where there is none. The elite of the item's own cell is within the distance, whatever
    the rounding.
    """
    best, rows_of_best = np.full(len(items), -np.inf), np.full(len(items), -1)
    best[elites.cells], rows_of_best[elites.cells] = elites.objectives, np.arange(len(elites))
    for start, block, scores, squares in _scored(elites.flat_measures, items, metric):
        least = 1 - within if metric == "cosine" else (squares[:, None] - within**2) / 2
        objectives = elites.objectives[start : start + scores.shape[1]]
        _keep_best(best, rows_of_best, start, block, np.where(scores >= least, objectives, -np.inf))
    return rows_of_best


def _scored(
    points: Float[np.ndarray, "n meas"], queries: Float[np.ndarray, "m meas"], metric: Metric
) -> Iterator[tuple[int, slice, Float[np.ndarray, "q p"], Float[np.ndarray, " q"]]]:
    """Yield the first of some points, some queries, their scores and the queries' squares."""
    is_cosine = metric == "cosine"
    center = 0.0 if is_cosine else _mean_row(queries, metric)

    def prepared(block: Float[np.ndarray, "b meas"]) -> Float[np.ndarray, "b meas"]:
        wide = block.astype(np.float64)
        return _unit(wide) if is_cosine else wide - center

    for start in range(0, len(points), _POINTS):
        candidates = prepared(points[start : start + _POINTS])
        squares = np.square(candidates).sum(axis=1)
        # Rows of zeros have no direction, so they are near to nothing.
        offsets = np.where(squares > 0, 0.0, np.inf) if is_cosine else squares / 2
        for first in range(0, len(queries), _QUERIES):
            block = slice(first, first + _QUERIES)
            asked = prepared(queries[block])
            yield start, block, asked @ candidates.T - offsets, np.square(asked).sum(axis=1)


def _keep_best(
    best: Float[np.ndarray, " m"],
    chosen: Int[np.ndarray, " m"],
    start: int,
    block: slice,
    values: Float[np.ndarray, "q p"],
) -> None:
    """Write the largest values of some queries, where they are larger than the best before."""
    candidate = values.argmax(axis=1)
    value = np.take_along_axis(values, candidate[:, None], axis=1)[:, 0]
    is_better = value > best[block]
    best[block] = np.where(is_better, value, best[block])
    chosen[block] = np.where(is_better, start + candidate, chosen[block])


def is_closeness(elites: Elites) -> bool:
    """Return whether the search had no objective but the closeness to the centers of cells."""
    measures, cells = elites.flat_measures[:_SAMPLE], elites.cells[:_SAMPLE]
    closeness = elites.archive.closeness(jnp.asarray(measures), jnp.asarray(cells))
    return np.allclose(elites.objectives[:_SAMPLE], closeness, rtol=1e-4, atol=1e-5)


def _mean_row(items: Float[np.ndarray, "n meas"], metric: Metric) -> Float[np.ndarray, " meas"]:
    """Return the mean of rows; with the cosine metric, of rows scaled to length one."""
    total = np.zeros(items.shape[1])
    for block in rows.blocks(items):
        wide = items[block].astype(np.float64)
        total += (_unit(wide) if metric == "cosine" else wide).sum(axis=0)
    return total / len(items)


def _unit(wide: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
    """Return rows of float64 scaled to length one; rows of zeros stay zero."""
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
