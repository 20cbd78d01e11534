"""How well an archive serves a dataset: which item each elite stands for, and how close it comes.

Plain coverage counts a cell as filled whatever came to lie in it. The figures here ask how far the
elite is from the item it stands for.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gloam import checks
from gloam.archives import CVTArchive, Elites
from gloam.datasets.dataset import Dataset

if TYPE_CHECKING:
    import pandas as pd

_ORDERS = {"objective": False, "distance": True, "label": True, "item": True}


class Matches:
    """The elites of a filled archive beside the items that its cells are.

    Args:
        elites: What a search found, for instance ``result.elites``.
        dataset: The items, in the order of the archive's cells.

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
            "Give the dataset that the archive was made of.",
        )
        self.elites = elites
        self.dataset = dataset
        self.metric: Literal["euclidean", "cosine"] = archive.metric

    @cached_property
    def distances(self) -> Float[np.ndarray, " n"]:
        """From each elite's measures to its item, by the archive's metric."""
        return _distances(
            self.metric, self.elites.flat_measures, self.dataset.items[self.elites.cells]
        )

    def table(
        self,
        by: Literal["objective", "distance", "label", "item"] = "objective",
    ) -> "pd.DataFrame":
        """A row for each elite: item, name, label, objective, distance; the best first.

        ``row`` is the elite's place in ``elites.solutions``.
        """
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        checks.expect(by in _ORDERS, "by", f"one of {', '.join(_ORDERS)}", repr(by))
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
        ordered = table.sort_values(columns, ascending=_ORDERS[by], kind="stable")
        return ordered.reset_index(drop=True)

    def coverage(self, within: float | None = None) -> float:
        """Share of the items that have an elite, or one ``within`` a distance."""
        if within is None:
            return len(self.elites) / len(self.dataset)
        return float((self.distances <= within).sum()) / len(self.dataset)

    def coverage_by_label(self, within: float | None = None) -> "pd.DataFrame":
        """A row for each label: its items, how many have an elite, and the share."""
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        checks.expect(self.dataset.labels is not None, "labels", "a dataset with labels", "none")
        near = np.ones(len(self.elites), bool) if within is None else self.distances <= within
        filled = np.zeros(len(self.dataset), bool)
        filled[self.elites.cells[near]] = True
        table = pd.DataFrame({"label": self.dataset.labels, "filled": filled})
        by_label = table.groupby("label")["filled"]
        found = pd.DataFrame({"items": by_label.size(), "filled": by_label.sum()}).reset_index()
        return found.assign(coverage=found["filled"] / found["items"])

    def held_out(self, others: Dataset) -> "pd.DataFrame":
        """How well the elites serve items that the search never saw.

        Returns:
            A row for each item of ``others``: ``distance`` to the nearest elite (whose place is
            ``row``), and ``floor``, its distance to the nearest item that the search did see: an
            archive that met all of its own items exactly would come that close.
        """
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        checks.expect(
            others.shape == self.dataset.shape,
            "others",
            f"items of shape {self.dataset.shape}",
            f"shape {others.shape}",
        )
        checks.expect(len(self.elites) > 0, "elites", "at least one elite", "none")
        row = nearest(self.elites.flat_measures, others.items, self.metric)
        own = nearest(self.dataset.items, others.items, self.metric)
        labels: Sequence[str | None] = others.labels or [None] * len(others)
        return pd.DataFrame(
            {
                "name": others.names,
                "label": labels,
                "row": row,
                "distance": _distances(self.metric, others.items, self.elites.flat_measures[row]),
                "floor": _distances(self.metric, others.items, self.dataset.items[own]),
            }
        )


def nearest(
    points: Float[np.ndarray, "n meas"], queries: Float[np.ndarray, "m meas"], metric: str
) -> Int[np.ndarray, " m"]:
    """Row of the nearest point to each query."""
    # Rows of zeros have no direction that could be near another.
    fit = np.arange(len(points))
    if metric == "cosine":
        fit = np.flatnonzero(np.linalg.norm(points, axis=1) > 0)
    if len(fit) < 2:
        return np.full(len(queries), fit[0] if len(fit) else 0)
    # A search over points is what an archive does to find cells.
    archive = CVTArchive(points[fit], metric=metric, index="exact")  # pyright: ignore
    blocks = [queries[start : start + 4096] for start in range(0, len(queries), 4096)]
    found = [np.asarray(archive.index_of(jnp.asarray(block))) for block in blocks]
    return fit[np.concatenate(found)]


def _distances(metric: str, points: np.ndarray, others: np.ndarray) -> np.ndarray:
    if metric == "euclidean":
        return np.linalg.norm(points - others, axis=1)
    product = (points * others).sum(axis=1)
    lengths = np.linalg.norm(points, axis=1) * np.linalg.norm(others, axis=1)
    # A row of zeros (a black picture) has no direction: it counts as at a right angle to all.
    cosine = np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0)
    return np.clip(1 - cosine, 0.0, 2.0)
