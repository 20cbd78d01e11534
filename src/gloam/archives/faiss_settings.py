"""Which index of nearest centroids an archive gets: by its size, or as its maker says."""

import dataclasses
import importlib.util
import warnings
from typing import Any, Literal

from gloam import checks
from gloam.devices import runs_on_cpu

Kind = Literal["flat", "ivf", "hnsw"]
IndexName = Literal["auto", "exact", "flat", "ivf", "hnsw"]

# From this many numbers (cells x measures) on, an exact search of 540 points takes two seconds on
# two cores, and an index of FAISS is built. 70,000 pictures of 28 x 28 are half of it.
LARGE = 100_000_000
_INSTALL = "Run: pip install 'gloam[faiss]'"


@dataclasses.dataclass(frozen=True)
class Faiss:
    """An index of FAISS on the host, for archives of `gloam.Search` and `gloam.optimize`.

    Args:
        kind: ``"flat"`` compares with every centroid. ``"ivf"`` divides the centroids into lists,
            scans a few of them in four-bit codes and compares with the best candidates exactly.
            ``"hnsw"`` walks a graph of neighbours; one thread builds it, so that it is the same
            each time, which takes long for a million.
        recall: The share of points that must get their nearest cell, on a sample. As much of the
            index is searched as that needs.
        sample: Points in the sample.
        lists: Lists of ``"ivf"``; about the square root of the cells by default.
        links: Neighbours of a cell in the graph of ``"hnsw"``.
        seed: Seed of the sample, and of what the index is trained on.

    Example:
        >>> Faiss("ivf", recall=0.99).recall
        0.99
    """

    kind: Kind = "ivf"
    recall: float = 0.95
    sample: int = 512
    lists: int | None = None
    links: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, ("flat", "ivf", "hnsw"))
        checks.number("recall", self.recall, above=0.0, at_most=1.0)
        checks.integer("sample", self.sample, minimum=1)
        if self.lists is not None:
            checks.integer("lists", self.lists, minimum=1)
        checks.integer("links", self.links, minimum=2)
        checks.integer("seed", self.seed, minimum=0, maximum=2**31 - 2)  # FAISS has int32

    def parts(self) -> dict[str, Any]:
        """The arguments that build it again, for files."""
        return dataclasses.asdict(self)


def chosen_index(index: IndexName | Faiss, cells: int, measures: int) -> Faiss | None:
    """Settings of FAISS, or ``None`` for the exact search on the device.

    ``"auto"`` takes FAISS where the search would be slow: on a CPU, for very large archives.

    >>> chosen_index("auto", 10_000, 784) is None
    True
    """
    if isinstance(index, Faiss):
        load_faiss()
        return index
    names = ("auto", "exact", "flat", "ivf", "hnsw")
    checks.expect(
        isinstance(index, str) and index in names,
        "index",
        "'auto', 'exact', 'flat', 'ivf', 'hnsw' or gloam.archives.Faiss(...)",
        repr(index),
    )
    if index == "exact":
        return None
    if index != "auto":
        load_faiss()
        return Faiss(index)
    if cells * measures < LARGE or not runs_on_cpu():
        return None
    if importlib.util.find_spec("faiss") is None:
        warnings.warn(
            f"index: {cells:,} cells x {measures} measures are searched exactly, which takes "
            f"seconds for each batch on a CPU. An approximate index is faster. {_INSTALL} "
            "(or pass index='exact', and this is not said again).",
            stacklevel=3,
        )
        return None
    return Faiss()


def load_faiss() -> Any:
    """The module ``faiss``, imported when it is needed only.

    Raises:
        ValueError: It is not installed.
    """
    with warnings.catch_warnings():
        # FAISS's wrapper (SWIG) makes types without a module, which newer Pythons warn of.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        try:
            import faiss  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ValueError(
                f"index: expected the package faiss-cpu, got none ({error}). {_INSTALL}, "
                "or pass index='exact'."
            ) from error
    return faiss
