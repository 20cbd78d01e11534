"""Measure how the speed of DMS scales with measures, cells, solution size, emitters and seeds."""

import argparse
import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import gloam
from gloam.domains import LinearProjection
from gloam.runs.comparison import as_markdown
from gloam.runs.fused_driver import FusedDriver
from gloam_lab.speed import BackgroundLoad

# Values around the paper's 10D problem, varied one at a time.
STANDARD = {"measures": 10, "cells": 10_000, "solution": 100, "emitters": 15, "seeds": 1}
AXES = {
    "measures": [2, 10, 50, 100, 200, 784],
    "cells": [1_000, 10_000, 100_000, 1_000_000],
    "solution": [10, 100, 1_000, 10_000],
    "emitters": [1, 5, 15, 50],
    "seeds": [1, 4, 20],
}
GPU_SEEDS = [1, 5, 20, 50, 100, 200]


def driver(measures: int, cells: int, solution: int, emitters: int, seeds: int) -> FusedDriver:
    """Start a search on LP (Sphere) with random centroids, which cost as much as any others."""
    size = measures * max(1, round(solution / measures))
    edge = 5.12 * size / measures
    centroids = np.random.default_rng(0).uniform(-edge, edge, (cells, measures))
    archive = gloam.CVTArchive(centroids.astype(np.float32), -edge, edge, f_min=0)
    domain = LinearProjection(measures, solution_dim=size)
    algorithm = gloam.DMS.paper(archive, np.zeros(size), 0.5, num_emitters=emitters)
    made = FusedDriver(domain, algorithm, list(range(seeds)))
    made.start()
    return made


def milliseconds(one: FusedDriver, repeats: int, seconds: float) -> list[float]:
    """Return the milliseconds per iteration (all seeds) in each timed period."""
    one.advance(3)
    start = time.perf_counter()
    one.advance(3)
    # Metrics are computed once in a period, as long as an iteration or two.
    size = max(20, round(3 * seconds / (time.perf_counter() - start)))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        one.advance(size)
        found.append(1000 * (time.perf_counter() - start) / size)
    return found


def main() -> int:
    """Measure along the chosen axes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES))
    parser.add_argument("--repeats", type=int, default=3, help="stretches of each point (3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a stretch (1)")
    parser.add_argument("--largest", type=int, default=10**6, help="skip larger values")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    accelerator = jax.default_backend() != "cpu"
    load, rows = BackgroundLoad(), []
    for axis in options.axes:
        values = GPU_SEEDS if axis == "seeds" and accelerator else AXES[axis]
        for value in values:
            if value > options.largest:
                continue
            times = milliseconds(
                driver(**(STANDARD | {axis: value})), options.repeats, options.seconds
            )
            middle = statistics.median(times)
            rows.append(
                {
                    "axis": axis,
                    "value": value,
                    "ms/iteration": round(middle, 2),
                    "min": round(min(times), 2),
                    "max": round(max(times), 2),
                    "iterations/s": round(1000 / middle, 1),
                }
            )
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(f"\n{jax.devices()[0].device_kind}, jax {jax.__version__}; otherwise {STANDARD}\n")
    print(as_markdown(table.astype(str)))
    print(load)
    if options.csv:
        table.to_csv(options.csv, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
