"""Nearest centroids on the host by FAISS: candidates from an index, compared exactly.

An index of FAISS names a few candidates for every point; their distances to the point are then
computed from the centroids themselves. So the index may hold short codes instead of a second copy
of the centroids: a million of 512 numbers are 2 GB, their codes 64 MB. For cosine similarity
centroids and points have length one, where the nearest is the most similar.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gloam.archives.faiss_settings import Kind, load_faiss

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
