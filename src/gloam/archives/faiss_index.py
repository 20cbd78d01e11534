"""Approximate nearest centroids on the host, by FAISS.

A FAISS index proposes candidates for each point, and exact distances to the centroids decide among
them. So the index may store short codes instead of a second copy of the centroids: a million
centroids of 512 numbers take 2 GB, their codes 64 MB. For cosine similarity, centroids and points
have length one, where the nearest centroid is the most similar one.

Results depend on the centroids and the settings alone, not on measured time or on the number of
threads: a resumed run finds the same cells.
"""

import dataclasses
import importlib.util
import re
import warnings
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from gloam._tools import checks
from gloam._tools.devices import runs_on_cpu
from gloam._tools.registry import register
from gloam._tools.warn import warn
from gloam.archives.nearest_centroids import squared_gaps

IndexName = Literal["auto", "exact", "flat", "ivf", "hnsw"]

LARGE = 100_000_000
"""Numbers (cells x measures) from which ``"auto"`` uses FAISS on a CPU: an exact search for 540
points takes two seconds there on two cores. 70,000 images of 28 x 28 are half of it."""
_INSTALL = "Run: pip install 'gloam[faiss]'"
# Up to this many measures or cells, default indexes store centroids uncompressed.
_FEW_MEASURES, _FEW_CELLS = 32, 10_000
_TRAINED_PER_LIST = 40
_BLOCK = 65_536  # centroids that are added at once
_SAMPLE = 512  # points on which recall is measured
_LEAST_EFFORT, _MOST_EFFORT = 8, 4096  # finding the lists costs as much as searching eight
# Points this many times farther out than any centroid are moved nearer, in their direction: the
# squares of float32 distances could not tell their cells apart, or overflow.
_FAR = 1e3


@register
@dataclasses.dataclass(frozen=True)
class Faiss:
    """Settings of a FAISS index on the host, for archives of `gloam.Search` and `gloam.optimize`.

    Args:
        factory: String for ``faiss.index_factory``, such as ``"IVF1024,PQ128x4fsr"`` or
            ``"HNSW32"``; by default an inverted file that suits the size of the archive.
            ``"Flat"`` compares with every centroid. HNSW graphs are built by one thread, so that
            they are the same each time, which takes long for a million cells.
        recall: Share of the points of a sample that must get their nearest cell. The index
            searches as much as that needs.
        nprobe: Number of lists to search (``efSearch`` for HNSW), instead of choosing it by
            ``recall``.
        seed: Seed of the sample and of the training.

    Example:
        >>> Faiss("IVF256,Flat", recall=0.99).recall
        0.99
    """

    factory: str | None = None
    recall: float = 0.95
    nprobe: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.factory is not None:
            checks.instance("factory", self.factory, str, "Such as 'IVF1024,Flat'.")
            # Larger numbers would exhaust the memory, and zeros end the process.
            sizes = [int(digits) for digits in re.findall("[0-9]+", self.factory[:1000])]
            checks.expect(
                0 < len(self.factory) <= 100 and all(0 < size < 10**6 for size in sizes),
                "factory",
                "1 to 100 characters with numbers from 1 to 999,999",
                checks.short(self.factory),
            )
        checks.number("recall", self.recall, above=0.0, at_most=1.0)
        if self.nprobe is not None:
            checks.integer("nprobe", self.nprobe, minimum=1)
        checks.integer("seed", self.seed, minimum=0, maximum=2**31 - 2)  # FAISS has int32


def chosen_index(index: IndexName | Faiss, cells: int, measures: int) -> Faiss | None:
    """Return the settings of FAISS with a factory string, or ``None`` for the exact search.

    >>> chosen_index("auto", 10_000, 784) is None
    True
    """
    names = ("auto", "exact", "flat", "ivf", "hnsw")
    checks.expect(
        isinstance(index, Faiss) or (isinstance(index, str) and index in names),
        "index",
        "'auto', 'exact', 'flat', 'ivf', 'hnsw' or gloam.archives.Faiss(...)",
        checks.short(index),
    )
    if index == "exact":
        return None
    if index == "auto":
        if cells * measures < LARGE or not runs_on_cpu():
            return None
        if importlib.util.find_spec("faiss") is None:
            warn(
                f"index: {cells:,} cells x {measures} measures are searched exactly, which takes "
                f"seconds for each batch on a CPU. An approximate index is faster. {_INSTALL}, "
                "or pass index='exact' to silence this warning.",
            )
            return None
    settings = index if isinstance(index, Faiss) else Faiss()
    factory = settings.factory or _named_factory(index, cells, measures)
    lists = re.match("IVF([0-9]+)", factory)
    checks.expect(
        lists is None or int(lists[1]) <= cells,
        "factory",
        f"at most as many lists as there are cells, {cells:,}",
        f"'{factory}'",
    )
    try:
        load_faiss().index_factory(measures, factory)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(
            f"factory: expected a string that faiss.index_factory accepts for {measures} measures, "
            f"got '{factory}' ({str(error).rpartition(': ')[2]})."
        ) from error
    return dataclasses.replace(settings, factory=factory)


def _named_factory(index: IndexName | Faiss, cells: int, measures: int) -> str:
    """Return the factory string of ``"flat"`` and ``"hnsw"``, else that of an inverted file."""
    few = measures <= _FEW_MEASURES or cells <= _FEW_CELLS
    if index == "flat":
        return "Flat"
    if index == "hnsw":
        return "HNSW32" if few else "HNSW32_SQ8"
    lists = max(1, min(2 ** round(np.log2(cells) / 2), cells // _TRAINED_PER_LIST))
    if few:
        return f"IVF{lists},Flat"
    # Codes of four bits for up to four measures, and for at most a 64th of them. They encode the
    # difference from the list's center, which tells the members of a tight cluster apart.
    widths = [w for w in (1, 2, 3, 4) if measures % w == 0 and (w == 1 or measures >= 64 * w)]
    return f"IVF{lists},PQ{measures // max(widths)}x4fsr"


def load_faiss() -> Any:
    """Import the module ``faiss``.

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


class FaissIndex:
    """Index over the centroids of one archive, which are passed to every search again.

    Warns if it cannot reach the recall that the settings ask for.

    Args:
        centroids: ``(cells, meas)`` centroids, of length one for cosine.
        origin: ``(meas,)`` point that is subtracted, so that float32 loses fewer bits.
        settings: Settings with a factory string.
        cosine: Whether points are scaled to length one.
    """

    def __init__(
        self,
        centroids: Float[np.ndarray, "cells meas"],
        origin: Float[np.ndarray, " meas"],
        settings: Faiss,
        *,
        cosine: bool,
    ):
        assert settings.factory is not None
        self.factory: str = settings.factory
        self.nprobe: int | None = None
        """Number of lists searched, or ``efSearch`` of HNSW; ``None`` for other indexes."""
        self.recall = 1.0
        """Share of sampled points that get their nearest centroid, see `sampled_points`."""
        self._origin, self._cosine = origin, cosine
        farthest = np.maximum(centroids.max(axis=0) - origin, origin - centroids.min(axis=0))
        self._radius = float(np.linalg.norm(farthest.astype(np.float64)))
        self._num_candidates = min(len(centroids), 64 if "IVF" in self.factory else 16)
        rng = np.random.default_rng(settings.seed)
        self._index = _filled(centroids, origin, self.factory, settings.seed, rng)
        self._tune(centroids, settings, rng)

    def __repr__(self) -> str:
        name = "nprobe" if "IVF" in self.factory else "efSearch"
        effort = "" if self.nprobe is None else f", {name} {self.nprobe}"
        return f"FaissIndex({self.factory}{effort}: recall {self.recall:.3f})"

    def nearest(
        self, points: Float[np.ndarray, "n meas"], centroids: Float[np.ndarray, "cells meas"]
    ) -> Int[np.ndarray, " n"]:
        """Return the nearest centroid found for each point; ties go to the lowest row.

        Rows with NaN or infinity get some cell; the caller masks them.
        """
        shifted = self._shifted(points)
        candidates = self._index.search(shifted, self._num_candidates)[1]
        points = shifted + self._origin
        nearest = _closest(points, centroids, candidates)
        for lost in np.flatnonzero(candidates[:, 0] < 0):  # all lists searched are empty
            all_rows = np.arange(len(centroids))[None]
            nearest[lost] = _closest(points[lost, None], centroids, all_rows)[0]
        return nearest

    def measure_recall(
        self,
        centroids: Float[np.ndarray, "cells meas"],
        rows: Int[np.ndarray, " n"],
        points: Float[np.ndarray, "n meas"],
    ) -> float:
        """Return the share of points that get the centroids in ``rows``, or equal ones."""
        nearest = self.nearest(points, centroids)
        return float(np.mean((centroids[nearest] == centroids[rows]).all(axis=1)))

    def _shifted(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
        """Return points relative to the origin, of length one for cosine, at a bounded distance."""
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            wide = points.astype(np.float64) - self._origin
        wide[~np.isfinite(wide).all(axis=1)] = 0.0
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        longest = 1.0 if self._cosine else _FAR * self._radius
        shrink = norms > (0.0 if self._cosine else longest)
        np.divide(wide * longest, norms, out=wide, where=shrink)
        return wide.astype(np.float32)

    def _tune(self, centroids: np.ndarray, settings: Faiss, rng: np.random.Generator) -> None:
        """Set the smallest effort that reaches the target recall, or the largest possible."""
        faiss = load_faiss()
        lists = faiss.try_extract_index_ivf(self._index)
        name = "nprobe" if lists is not None else "efSearch" if "HNSW" in self.factory else None
        most = _MOST_EFFORT if lists is None else lists.nlist
        effort = min(most, settings.nprobe or _LEAST_EFFORT)
        target = settings.recall if settings.nprobe is None else -np.inf
        rows, points = sampled_points(centroids, self._origin, rng)
        while True:
            if name is not None:
                faiss.ParameterSpace().set_index_parameter(self._index, name, effort)
                self.nprobe = effort
            self.recall = self.measure_recall(centroids, rows, points)
            # A sample that just reaches it may have been lucky: two standard errors to be safe.
            error = np.sqrt(self.recall * (1 - self.recall) / len(rows))
            if self.recall - 2 * error >= target or name is None or effort == most:
                break
            effort = min(most, effort * 3 // 2)
        if self.recall < target:
            warn(
                f"index: expected a recall of {target:g}, got {self.recall:.3f}, the most "
                f"that '{self.factory}' reaches on these centroids. Pass index='exact', another "
                "factory string, or ask for less recall.",
            )


def sampled_points(
    centroids: Float[np.ndarray, "cells meas"],
    origin: Float[np.ndarray, " meas"],
    rng: np.random.Generator,
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n meas"]]:
    """Return rows of random centroids, and these centroids moved in random directions.

    They are moved by half the distance to the nearest other centroid, which is as far as is certain
    to be inside the cell.
    """
    rows = np.sort(rng.choice(len(centroids), min(len(centroids), _SAMPLE), replace=False))
    squared = squared_gaps(centroids, rows, origin)
    half = 0.5 * np.sqrt(np.where(np.isfinite(squared), squared, 0.0))
    direction = rng.standard_normal((len(rows), centroids.shape[1]))
    direction *= (half / np.linalg.norm(direction, axis=1))[:, None]
    return rows, (centroids[rows] + direction).astype(np.float32)


def _closest(
    points: Float[np.ndarray, "n meas"],
    centroids: Float[np.ndarray, "cells meas"],
    candidates: Int[np.ndarray, "n count"],
) -> Int[np.ndarray, " n"]:
    """Return the nearest candidate of each point, the lowest of equal ones; -1 is no candidate."""
    faiss = load_faiss()
    distances = np.empty(candidates.shape, np.float32)
    arrays = map(faiss.swig_ptr, (distances, points, centroids, candidates))
    faiss.fvec_L2sqr_by_idx(*arrays, points.shape[1], *candidates.shape)
    distances[candidates < 0] = np.inf
    ties = (distances == distances.min(axis=1, keepdims=True)) & (candidates >= 0)
    return np.where(ties, candidates, len(centroids)).min(axis=1).astype(np.int32)


def _filled(
    centroids: np.ndarray, origin: np.ndarray, factory: str, seed: int, rng: np.random.Generator
) -> Any:
    """Train an index and add the centroids."""
    faiss = load_faiss()
    cells, measures = centroids.shape
    index = faiss.index_factory(measures, factory)
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        lists.cp.seed = seed + 1
        lists.cp.min_points_per_centroid = 1  # else FAISS prints warnings for small archives
    count = 20_000 if lists is None else max(10_000, _TRAINED_PER_LIST * lists.nlist)
    rows = np.sort(rng.choice(cells, min(cells, count), replace=False))
    threads = faiss.omp_get_max_threads()
    if "HNSW" in factory:  # several threads would link neighbors in any order
        faiss.omp_set_num_threads(1)
    try:
        index.train(centroids[rows] - origin)
        for start in range(0, cells, _BLOCK):
            index.add(centroids[start : start + _BLOCK] - origin)
    finally:
        faiss.omp_set_num_threads(threads)
    return index
