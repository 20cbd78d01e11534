"""A million items: an archive with a FAISS index, its recall and time, and a search on it.

Prints how long the archive takes to build, the peak memory, the settings and recall of the index,
recall and time of a batch for points of several kinds, and the time of an iteration of DMS by
ask-tell.
"""

import argparse
import os
import sys
import time

import numpy as np

import gloam
from gloam.archives import Faiss
from gloam.archives.faiss_index import load_faiss
from memory import peak, resident

_BLOCK = 65_536


def items(count: int, measures: int, kind: str, random: np.random.Generator) -> np.ndarray:
    """Vectors of length one: all directions alike, or around a thousand centres."""
    rows = np.empty((count, measures), np.float32)
    centers = random.standard_normal((1000, measures), dtype=np.float32)
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    for start in range(0, count, _BLOCK):
        block = rows[start : start + _BLOCK]
        random.standard_normal(block.shape, dtype=np.float32, out=block)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
        if kind == "clustered":
            block *= 0.7
            block += centers[random.integers(0, len(centers), len(block))]
            block /= np.linalg.norm(block, axis=1, keepdims=True)
    return rows


def points(
    archive: gloam.CVTArchive, unseen: np.ndarray, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Points to find the cells of, by kind."""
    centroids = np.asarray(archive.centroids)
    batch, measures = unseen.shape
    own = centroids[random.integers(0, archive.num_cells, batch)]
    gap = np.sqrt(load_faiss().knn(own, centroids, 2)[0][:, 1:])
    noise = random.standard_normal((2, batch, measures), dtype=np.float32)
    noise /= np.linalg.norm(noise, axis=2, keepdims=True)
    return {
        "item + half the distance to its neighbour": own + 0.5 * gap * noise[0],
        "item + the whole distance": own + gap * noise[0],
        "unseen item": unseen,
        "random direction": noise[1],
    }


def assignment(archive: gloam.CVTArchive, batches: dict[str, np.ndarray], repeats: int) -> None:
    """Recall and time of a batch of each kind."""
    centroids = np.asarray(archive.centroids)
    for kind, batch in batches.items():
        compared = batch
        if archive.metric == "cosine":
            compared = batch / np.linalg.norm(batch, axis=1, keepdims=True)
        exact = load_faiss().knn(compared, centroids, 1)[1][:, 0]
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            found = archive.index_on_host(batch)
            times.append(1e3 * (time.perf_counter() - start))
        assert found is not None
        distance = [np.linalg.norm(compared - centroids[cells], axis=1) for cells in (found, exact)]
        print(
            f"  {kind}: recall {np.mean(found == exact):.3f}, the item found is "
            f"{100 * (distance[0].sum() / distance[1].sum() - 1):.1f}% farther than the nearest; "
            f"{np.median(times):.0f} ms ({min(times):.0f}-{max(times):.0f}) for {len(batch)}",
            flush=True,
        )


def search(archive: gloam.CVTArchive, iterations: int, random: np.random.Generator) -> None:
    """DMS by ask-tell: solutions of 100 numbers, mapped linearly to measures."""
    algorithm = gloam.DMS.paper(archive, np.zeros(100), 0.5)
    weights = random.standard_normal((100, archive.measure_dim), dtype=np.float32)
    run = gloam.Search(algorithm)
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        run.tell(None, run.ask() @ weights)
        run.state.iteration.block_until_ready()
        times.append(1e3 * (time.perf_counter() - start))
    warm = times[len(times) > 1 :]
    print(
        f"{iterations} iterations of DMS by ask-tell in {sum(times) / 1e3:.0f} s: median "
        f"{np.median(warm):.0f} ms an iteration ({min(warm):.0f}-{max(warm):.0f}), "
        f"{len(run.elites()):,} cells filled; most ever held {peak():.0f} MB",
        flush=True,
    )


def main() -> int:
    """Build, look, search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--measures", type=int, default=512)
    parser.add_argument("--data", choices=["random", "clustered"], default="clustered")
    parser.add_argument("--metric", choices=["euclidean", "cosine"], default="cosine")
    parser.add_argument("--factory", help="string for faiss.index_factory; by default by the items")
    parser.add_argument("--recall", type=float, default=0.95, help="the recall wanted")
    parser.add_argument("--batch", type=int, default=540)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=200, help="of the search; 0 for none")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = items(options.items + options.batch, options.measures, options.data, random)
    given, unseen = rows[: options.items], rows[options.items :].copy()
    print(
        f"{options.items:,} x {options.measures}, {options.data}, {options.metric}: "
        f"{resident():.0f} MB, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    start = time.perf_counter()
    settings = Faiss(options.factory, recall=options.recall)
    archive = gloam.CVTArchive(given, metric=options.metric, index=settings)
    assert archive.index is not None  # which builds it
    print(
        f"built in {time.perf_counter() - start:.0f} s, {resident():.0f} MB, most ever held "
        f"{peak():.0f} MB, load {os.getloadavg()[0]:.1f}\n  {archive.index}",
        flush=True,
    )
    assignment(archive, points(archive, unseen, random), options.repeats)
    if options.iterations:
        search(archive, options.iterations, random)
    return 0


if __name__ == "__main__":
    sys.exit(main())
