"""Building an index of FAISS: training, and searching as much of it as the recall wanted needs.

Nothing here depends on measured time or on the number of threads that happen to be free, so that
the same centroids and settings give the same index: a run that is resumed finds the same cells.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam.archives.faiss_index import FaissIndex, shifted_blocks
from gloam.archives.faiss_settings import Faiss, load_faiss

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
