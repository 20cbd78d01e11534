"""`Matches`: the elites of a filled archive compared with the items of a dataset.

Coverage alone counts a cell as filled however far its elite is from the item; matches have the
distance from each elite to its item.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gloam import checks
from gloam.archives import CVTArchive, Elites
from gloam.datasets.dataset import Dataset

if TYPE_CHECKING:
    import pandas as pd  # imported where it is used: it takes half a second

Order = Literal["objective", "distance", "label", "item"]

_IS_ASCENDING = {"objective": False, "distance": True, "label": True, "item": True}
_QUERIES = 4096  # items whose nearest points are found at a time


class Matches:
    """The elites of a filled archive, each with the item of its cell.

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
        >>> matches.table()[["item", "label", "distance"]].values.tolist()
        [[1, 'a', 0.0], [0, 'a', 0.5]]
        >>> matches.coverage(within=0.1), matches.coverage()
        (0.3333333333333333, 0.6666666666666666)
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
        self.metric: Literal["euclidean", "cosine"] = archive.metric

    @cached_property
    def distances(self) -> Float[np.ndarray, " n"]:
        """Distance from the measures of each elite to its item, by the archive's metric."""
        items = self.dataset.items[self.elites.cells]
        return _distances(self.metric, self.elites.flat_measures, items)

    def table(self, by: Order = "objective") -> "pd.DataFrame":
        """Return a table with item, name, label, objective and distance of each elite, best first.

        The column ``row`` is the index of the elite in ``elites.solutions``.
        """
        import pandas as pd

        orders = ", ".join(_IS_ASCENDING)
        checks.expect(by in _IS_ASCENDING, "by", f"one of {orders}", repr(by))
        cells, labels = self.elites.cells, self.dataset.labels
        table = pd.DataFrame(
            {
                "row": np.arange(len(cells)),
                "item": cells,
                "name": [self.dataset.names[cell] for cell in cells],
                "label": [None if labels is None else labels[cell] for cell in cells],
                "objective": self.elites.objectives,
                "distance": self.distances,
            }
        )
        columns = ["label", "distance"] if by == "label" else [by]
        ordered = table.sort_values(columns, ascending=_IS_ASCENDING[by], kind="stable")
        return ordered.reset_index(drop=True)

    def coverage(self, within: float | None = None) -> float:
        """Return the share of items that have an elite, or an elite ``within`` a distance."""
        if within is None:
            return len(self.elites) / len(self.dataset)
        return float((self.distances <= within).sum()) / len(self.dataset)

    def coverage_by_label(self, within: float | None = None) -> "pd.DataFrame":
        """Return the number of items and of filled items and the coverage of each label."""
        import pandas as pd

        checks.expect(self.dataset.labels is not None, "labels", "a dataset with labels", "none")
        near = np.ones(len(self.elites), bool) if within is None else self.distances <= within
        filled = np.zeros(len(self.dataset), bool)
        filled[self.elites.cells[near]] = True
        table = pd.DataFrame({"label": self.dataset.labels, "filled": filled})
        by_label = table.groupby("label")["filled"]
        found = pd.DataFrame({"items": by_label.size(), "filled": by_label.sum()}).reset_index()
        return found.assign(coverage=found["filled"] / found["items"])

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
        own = _nearest(items, others.items, self.metric)
        return pd.DataFrame(
            {
                "name": others.names,
                "label": others.labels or [None] * len(others),
                "row": row,
                "distance": _distances(self.metric, others.items, measures[row]),
                "floor": _distances(self.metric, others.items, items[own]),
            }
        )


def _nearest(
    points: Float[np.ndarray, "n meas"],
    queries: Float[np.ndarray, "m meas"],
    metric: Literal["euclidean", "cosine"],
) -> Int[np.ndarray, " m"]:
    """Return the index of the nearest point to each query."""
    # Rows of zeros have no direction, so they are near to nothing.
    usable = np.arange(len(points))
    if metric == "cosine":
        usable = np.flatnonzero(np.linalg.norm(points, axis=1) > 0)
    if len(usable) < 2:
        return np.full(len(queries), usable[0] if len(usable) else 0)
    archive = CVTArchive(points[usable], metric=metric, index="exact")
    parts = [queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES)]
    found = [np.asarray(archive.index_of(jnp.asarray(part))) for part in parts]
    return usable[np.concatenate(found)]


def _distances(metric: str, points: np.ndarray, others: np.ndarray) -> np.ndarray:
    if metric == "euclidean":
        return np.linalg.norm(points - others, axis=1)
    product = (points * others).sum(axis=1)
    lengths = np.linalg.norm(points, axis=1) * np.linalg.norm(others, axis=1)
    # A row of zeros (a black image) has no direction; its distance to every row is 1.
    cosine = np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0)
    return np.clip(1 - cosine, 0.0, 2.0)
