"""Check that memory does not grow with iterations, and that large problems fit in little memory."""

import argparse
import resource
import sys
import time

import jax
import numpy as np

import gloam
from gloam.domains import LinearProjection
from gloam.runs.fused_driver import FusedDriver


def resident() -> float:
    """Return the resident memory of this process in megabytes (Linux)."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(iterations: int) -> None:
    """Print the resident memory during a long run of both drivers on 2D LP (Sphere)."""
    domain = LinearProjection(2)
    algorithm = gloam.DMS.paper(domain.archive(), domain.x0, 0.5)
    fused = FusedDriver(domain, algorithm, [0])
    fused.start()
    search = gloam.Search(algorithm)
    for step in range(6):
        fused.advance(iterations // 5 if step else 50)
        for _ in range(iterations // 50 if step else 50):
            x = search.ask()
            search.tell(1 - np.square(x).mean(axis=1), x[:, :2])
        print(
            f"fused {fused.iteration:>6} iterations, ask-tell {search.iteration:>5}: "
            f"{resident():.0f} MB",
            flush=True,
        )


def large(cells: int, measures: int, solution: int, iterations: int) -> None:
    """Run a few iterations on a large problem."""
    start = time.perf_counter()
    random = np.random.default_rng(0)
    centroids = random.standard_normal((cells, measures), dtype=np.float32)
    archive = gloam.CVTArchive(centroids, index="exact")  # million.py is about FAISS
    del centroids
    algorithm = gloam.DMS.paper(archive, np.zeros(solution), 0.5)
    print(
        f"{cells:,} cells x {measures} measures, solutions of {solution:,} numbers, "
        f"{type(algorithm.emitter.strategy).__name__}: built in "
        f"{time.perf_counter() - start:.0f} s, {resident():.0f} MB",
        flush=True,
    )
    search = gloam.Search(algorithm)
    weights = random.standard_normal((solution, measures), dtype=np.float32) / solution**0.5
    for _ in range(iterations):
        start = time.perf_counter()
        x = search.ask()
        search.tell(-np.square(x).mean(axis=1), x @ weights)
        search.state.iteration.block_until_ready()
        print(
            f"  iteration {search.iteration}: {time.perf_counter() - start:.2f} s, "
            f"{resident():.0f} MB",
            flush=True,
        )
    print(f"  most ever held: {peak():.0f} MB", flush=True)


def compiled(seeds: int, side: int, iterations: int) -> None:
    """Print the memory of a search by `gloam.run` on 2D LP (Sphere), a grid of side x side."""
    domain = LinearProjection(2)
    own = domain.archive()
    archive = gloam.GridArchive((side, side), lower=own.lower, upper=own.upper, f_min=0)
    before = resident()
    driver = FusedDriver(domain, gloam.DMS(archive, domain.x0, 0.5), list(range(seeds)))
    driver.start()
    leaves = jax.tree.leaves(driver.checkpoint())
    state = sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes")) / 2**20
    driver.advance(iterations)
    device = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
    print(
        f"{seeds} seeds x {side * side:,} cells x {domain.x0.size} numbers: {before:.0f} MB, "
        f"state {state:.0f} MB, peak {peak():.0f} MB of the process, {device:.0f} MB of the device"
    )


def main() -> int:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["growth", "cells", "solution", "seeds", "million"])
    parser.add_argument("--iterations", type=int)
    options = parser.parse_args()
    if options.what == "growth":
        growth(options.iterations or 5000)
    elif options.what == "cells":
        large(1_000_000, 512, 100, options.iterations or 3)
    elif options.what == "seeds":
        compiled(20, 100, options.iterations or 50)
    elif options.what == "million":
        compiled(1, 1000, options.iterations or 50)
    else:
        large(10_000, 10, 10_000, options.iterations or 20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
