"""Which index of nearest centroids an archive gets: by its size, or as its maker says.

Nearest centroids on the host by FAISS: candidates from an index, compared exactly.

An index of FAISS names a few candidates for every point; their distances to the point are then
computed from the centroids themselves. So the index may hold short codes instead of a second copy
of the centroids: a million of 512 numbers are 2 GB, their codes 64 MB. For cosine similarity
centroids and points have length one, where the nearest is the most similar.

Building an index of FAISS: training, and searching as much of it as the recall wanted needs.

Nothing here depends on measured time or on the number of threads that happen to be free, so that
the same centroids and settings give the same index: a run that is resumed finds the same cells.
"""

import dataclasses
import importlib.util
import time
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

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


_BLOCK = 65_536
_WIDE_BLOCK = 8192  # centroids in float64 at once
# Points this many times farther out than any centroid are brought nearer, in their direction: the
# squares of float32 distances could not tell their cells apart, or overflow.
_FAR = 1e3
# How many are compared exactly. A flat search compares by |p|^2 - 2 p.c + |c|^2, which rounds a
# little; codes of four bits for four measures lose much.
_CANDIDATES = {"flat": 8, "ivf": 64, "hnsw": 16}


class FaissIndex:
    """An index over the centroids of one archive. It does not hold them: they are handed over.

    Args:
        kind: Which index of FAISS.
        cosine: Whether points are brought to length one.
        origin: ``(meas,)`` point that is subtracted, so that float32 loses fewer bits.
        radius: Largest distance of a centroid from there.
        content: The index, by ``faiss.serialize_index``; nothing for ``"flat"``.
        effort: How much is searched: lists for ``"ivf"``, ``efSearch`` for ``"hnsw"``.
        wanted: The recall that was asked for.
        recall: The share of sampled points near centroids that get their nearest one; a point is
            a random centroid moved by half the distance to its nearest neighbour, which is as far
            as is certain to be inside its cell.
        recall_between: The share of sampled centroids that get the nearest *other* one: what to
            expect of points that are new, between the centroids (``"hnsw"`` looks better here than
            it is, because its graph links a centroid to its neighbours).
        milliseconds: Time of a search of ``timed`` points when the index was built.
        timed: How many points that was.
        by_differences: Whether products of float32 numbers cannot tell centroids apart, see
            `gloam.archives.nearest_centroids`; an exact comparison is then in float64.
    """

    def __init__(
        self,
        *,
        kind: Kind,
        cosine: bool,
        origin: Any,
        radius: float,
        content: Any,
        effort: int = 1,
        wanted: float = 1.0,
        recall: float = 1.0,
        recall_between: float = 1.0,
        milliseconds: float | None = None,
        timed: int = 0,
        by_differences: bool = False,
    ):
        self.kind: Kind = kind
        self.cosine = cosine
        self.origin: Float[np.ndarray, " meas"] = np.asarray(origin, np.float32)
        self.radius = radius
        self.effort = effort
        self.candidates = _CANDIDATES[kind]
        self.wanted = wanted
        self.recall = recall
        self.recall_between = recall_between
        self.milliseconds = milliseconds
        self.timed = timed
        self.by_differences = by_differences
        faiss = load_faiss()
        content = np.asarray(content, np.uint8)
        self._index: Any = faiss.deserialize_index(content) if content.size else None

    def __repr__(self) -> str:
        if self.kind == "flat":
            return "FaissIndex(flat: exact)"
        effort = f"{self.effort} lists" if self.kind == "ivf" else f"efSearch {self.effort}"
        time = "" if self.milliseconds is None else f", {self.milliseconds:.0f} ms for {self.timed}"
        return (
            f"FaissIndex({self.kind}, {effort}: recall {self.recall:.3f} near centroids, "
            f"{self.recall_between:.3f} between them{time})"
        )

    def nearest(
        self, points: Float[np.ndarray, "n meas"], centroids: Float[np.ndarray, "cells meas"]
    ) -> Int[np.ndarray, " n"]:
        """The nearest centroid found for each point; ties go to the lowest row.

        Rows with NaN or infinity get some cell; whoever has such rows masks them.
        """
        prepared = self.prepared(points)
        ids = self.candidate_rows(prepared, centroids)
        found = self.closest(prepared, centroids, ids)
        lost = np.flatnonzero(found < 0)  # all lists that were looked at are empty
        if len(lost):
            few = min(self.candidates, len(centroids))
            ids = self.exact_candidates(prepared[lost], centroids, few)
            found[lost] = self.closest(prepared[lost], centroids, ids)
        return found.astype(np.int32)

    def prepared(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
        """Points as the index knows them: from the origin, of length one for cosine, never far."""
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            wide = points.astype(np.float64) - self.origin
        wide[~np.isfinite(wide).all(axis=1)] = 0.0
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        longest = 1.0 if self.cosine else _FAR * self.radius
        shrink = norms > (0.0 if self.cosine else longest)
        np.divide(wide * longest, norms, out=wide, where=shrink)
        return wide.astype(np.float32)

    def candidate_rows(
        self, prepared: Float[np.ndarray, "n meas"], centroids: Float[np.ndarray, "cells meas"]
    ) -> Int[np.ndarray, "n candidates"]:
        """Rows of centroids that may be the nearest, the likeliest first; -1 for none."""
        count = min(self.candidates, len(centroids))
        if self._index is None:
            return self.exact_candidates(prepared, centroids, count)
        faiss = load_faiss()
        if self.kind == "ivf":
            settings = faiss.SearchParametersIVF(nprobe=self.effort)
        else:
            settings = faiss.SearchParametersHNSW(efSearch=self.effort)
        return self._index.search(prepared, count, params=settings)[1]

    def exact_candidates(
        self,
        prepared: Float[np.ndarray, "n meas"],
        centroids: Float[np.ndarray, "cells meas"],
        count: int,
    ) -> Int[np.ndarray, "n count"]:
        """The ``count`` nearest centroids of each point, by comparison with every one."""
        wide = self.by_differences
        return _exact_candidates(prepared, centroids, self.origin, count, wide=wide)

    def closest(
        self,
        prepared: Float[np.ndarray, "n meas"],
        centroids: Float[np.ndarray, "cells meas"],
        ids: Int[np.ndarray, "n count"],
    ) -> Int[np.ndarray, " n"]:
        """The nearest of each point's candidates, the lowest of equal ones; -1 where none is."""
        faiss = load_faiss()
        # In the frame of the centroids, so that they need not be shifted.
        points = np.ascontiguousarray(prepared + self.origin)
        ids = np.ascontiguousarray(ids, np.int64)
        distances = np.empty(ids.shape, np.float32)
        pointer = faiss.swig_ptr
        faiss.fvec_L2sqr_by_idx(
            pointer(distances),
            pointer(points),
            pointer(centroids),
            pointer(ids),
            points.shape[1],
            *ids.shape,
        )
        distances[ids < 0] = np.inf
        ties = distances == distances.min(axis=1, keepdims=True)
        lowest = np.where(ties & (ids >= 0), ids, len(centroids)).min(axis=1)
        return np.where(lowest < len(centroids), lowest, -1)


def shifted_blocks(
    centroids: Float[np.ndarray, "cells meas"],
    origin: Float[np.ndarray, " meas"],
    size: int = _BLOCK,
) -> Iterator[tuple[int, Float[np.ndarray, "block meas"]]]:
    """Centroids from the origin with the number of their first row, in blocks that fit memory."""
    for start in range(0, len(centroids), size):
        yield start, centroids[start : start + size] - origin


def _exact_candidates(
    prepared: Float[np.ndarray, "n meas"],
    centroids: Float[np.ndarray, "cells meas"],
    origin: Float[np.ndarray, " meas"],
    count: int,
    *,
    wide: bool,
) -> Int[np.ndarray, "n count"]:
    """The nearest centroids, block by block; ``wide`` compares in float64."""
    nearest = _nearest_in_float64 if wide else load_faiss().knn
    rows = np.full((len(prepared), count), -1)
    distances = np.full(rows.shape, np.inf, np.float64 if wide else np.float32)
    for start, block in shifted_blocks(centroids, origin, _WIDE_BLOCK if wide else _BLOCK):
        more, found = nearest(prepared, block, min(count, len(block)))
        distances = np.concatenate([distances, more], axis=1)
        rows = np.concatenate([rows, found + start], axis=1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :count]
        distances = np.take_along_axis(distances, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
    return rows


def _nearest_in_float64(
    points: Float[np.ndarray, "n meas"], block: Float[np.ndarray, "rows meas"], count: int
) -> tuple[np.ndarray, np.ndarray]:
    p, b = points.astype(np.float64), block.astype(np.float64)
    squared = np.square(p).sum(axis=1)[:, None] - 2 * p @ b.T + np.square(b).sum(axis=1)
    found = np.argsort(squared, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(squared, found, axis=1), found


# Centroids of up to so many measures are held as they are, which takes little memory; larger ones
# as codes of four bits for up to four measures.
_PLAIN = 32
# Lists explain little when more than this share of the variance is inside of them.
_LEFT_OVER = 0.8
_TRAINED_PER_LIST = 40
# Less effort hardly saves time: finding the lists costs as much as scanning so many.
_LEAST_EFFORT = 8
_MOST_EFFORT = 4096  # of HNSW; IVF can search all its lists
_TIMED = 3


def build_index(
    centroids: Float[np.ndarray, "cells meas"],
    origin: Float[np.ndarray, " meas"],
    settings: Faiss,
    *,
    cosine: bool,
    by_differences: bool = False,
) -> FaissIndex:
    """An index over ``centroids`` (of length one for cosine) that reaches the recall wanted.

    Warns where it cannot, and then searches as much as there is.
    """
    rng = np.random.default_rng(settings.seed)
    with np.errstate(over="ignore"):
        radius = max(
            float(np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64).max()))
            for _, block in shifted_blocks(centroids, origin)
        )
    parts: dict[str, Any] = {
        "kind": settings.kind,
        "cosine": cosine,
        "origin": origin,
        "radius": radius,
        "wanted": settings.recall,
        "by_differences": by_differences,
    }
    if settings.kind == "flat":
        return FaissIndex(**parts, content=np.zeros(0, np.uint8))
    faiss = load_faiss()
    filled = _ivf if settings.kind == "ivf" else _hnsw
    content = faiss.serialize_index(filled(centroids, origin, settings, rng))
    index = FaissIndex(**parts, content=content)
    del content
    most = _lists(settings, len(centroids)) if settings.kind == "ivf" else _MOST_EFFORT
    _Sample(centroids, index, settings, rng).tune(index, most)
    return index


def _lists(settings: Faiss, cells: int) -> int:
    """Lists of an IVF index: the power of two nearest to the root of the cells, by default."""
    if settings.lists is not None:
        return min(settings.lists, cells)
    return max(1, min(2 ** round(np.log2(cells) / 2), cells // _TRAINED_PER_LIST))


def _ivf(centroids: np.ndarray, origin: np.ndarray, settings: Faiss, rng: Any) -> Any:
    faiss = load_faiss()
    cells, measures = centroids.shape
    lists = _lists(settings, cells)
    count = min(cells, max(10_000, _TRAINED_PER_LIST * lists))
    rows = centroids[np.sort(rng.choice(cells, count, replace=False))] - origin
    # Without a least number FAISS prints warnings for small archives.
    kmeans = faiss.Kmeans(
        measures, lists, niter=8, seed=settings.seed + 1, min_points_per_centroid=1
    )
    kmeans.train(rows)
    if measures <= _PLAIN:
        index = faiss.IndexIVFFlat(kmeans.index, measures, lists)
    else:
        # Where lists explain the centroids, codes of what is left over from a list's middle tell
        # close neighbours apart. They need a table for each point and list, which is slow for
        # many lists. Where lists explain little many must be searched, and coarse codes do.
        left_over = kmeans.index.search(rows, 1)[0].mean() / np.square(rows).sum(axis=1).mean()
        explained = bool(left_over < _LEFT_OVER)
        codes = _codes(measures, widest=4 if explained else 8)
        index = faiss.IndexIVFPQFastScan(kmeans.index, measures, lists, codes, 4)
        index.by_residual = explained
        index.pq.cp.min_points_per_centroid = 1
    index.train(rows)
    for _, block in shifted_blocks(centroids, origin):
        index.add(block)
    return index


def _codes(measures: int, widest: int) -> int:
    """Codes for a centroid, each for the same number of measures; at least 64 if there are."""
    widths = [
        width for width in range(2, widest + 1) if measures % width == 0 and measures >= 64 * width
    ]
    return measures // max([1, *widths])


def _hnsw(centroids: np.ndarray, origin: np.ndarray, settings: Faiss, rng: Any) -> Any:
    faiss = load_faiss()
    cells, measures = centroids.shape
    if measures <= _PLAIN:
        index = faiss.IndexHNSWFlat(measures, settings.links)
    else:
        codes = faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexHNSWSQ(measures, codes, settings.links)
    chosen = np.sort(rng.choice(cells, min(cells, 20_000), replace=False))
    index.train(centroids[chosen] - origin)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # several threads link neighbours in the order they come
    try:
        for _, block in shifted_blocks(centroids, origin):
            index.add(block)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


class _Sample:
    """Points with their nearest centroids, found by comparison with all of them."""

    def __init__(self, centroids: np.ndarray, index: FaissIndex, settings: Faiss, rng: Any):
        cells, measures = centroids.shape
        self.centroids = centroids
        self.rows = np.sort(rng.choice(cells, min(cells, settings.sample), replace=False))
        self.items = index.prepared(centroids[self.rows])
        self.others = self._other(index, self._exact(index, self.items))
        gap = centroids[self.others] - centroids[self.rows]
        half = 0.5 * np.linalg.norm(gap, axis=1, keepdims=True)
        direction = rng.standard_normal((len(self.rows), measures), dtype=np.float32)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        self.points = centroids[self.rows] + half * direction
        self.near = index.prepared(self.points)
        self.nearest = index.closest(self.near, centroids, self._exact(index, self.near))

    def _exact(self, index: FaissIndex, prepared: np.ndarray) -> np.ndarray:
        few = min(index.candidates, len(self.centroids))
        return index.exact_candidates(prepared, self.centroids, few)

    def _other(self, index: FaissIndex, ids: np.ndarray) -> np.ndarray:
        """The nearest centroid but the one itself; itself where there is no other."""
        others = np.where(ids == self.rows[:, None], -1, ids)
        found = index.closest(self.items, self.centroids, others)
        return np.where(found < 0, self.rows, found)

    def tune(self, index: FaissIndex, most: int) -> None:
        """Give ``index`` the least effort that reaches the recall wanted, or all there is."""
        for effort in _efforts(most):
            index.effort = effort
            found = index.nearest(self.points, self.centroids)
            index.recall = float(np.mean(found == self.nearest))
            # A sample that just reaches it may have been lucky: two standard errors to be safe.
            error = np.sqrt(index.recall * (1 - index.recall) / len(found))
            if index.recall - 2 * error >= index.wanted:
                break
        ids = index.candidate_rows(self.items, self.centroids)
        index.recall_between = float(np.mean(self._other(index, ids) == self.others))
        self._time(index)
        if index.recall < index.wanted:
            warnings.warn(
                f"index: expected a recall of {index.wanted:g}, got {index.recall:.3f}, the best "
                f"that '{index.kind}' reaches on these centroids. Pass index='exact', another "
                "kind, or ask for less recall.",
                stacklevel=5,
            )

    def _time(self, index: FaissIndex) -> None:
        times = []
        for _ in range(_TIMED):
            start = time.perf_counter()
            index.nearest(self.points, self.centroids)
            times.append(1e3 * (time.perf_counter() - start))
        index.milliseconds, index.timed = float(np.median(times)), len(self.points)


def _efforts(most: int) -> Iterator[int]:
    """8, 12, 16, 24, 32, ... and ``most`` at last."""
    effort = _LEAST_EFFORT
    while effort < most:
        yield effort
        if effort * 3 // 2 < most:
            yield effort * 3 // 2
        effort *= 2
    yield most
