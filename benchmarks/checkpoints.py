"""Measure checkpoints of a large archive, and the memory of a run that logs every iteration.

`cost` writes and reads a checkpoint of an archive of a given size several times. The interval
between timed checkpoints is at least thirty times the duration of the last one, so that they take
at most 1/31 of a run's time; the first one is written after a minute.
`run` runs a real search on such an archive and prints the share of time spent on checkpoints.
`memory` logs a million rows, like a run of several days.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import gloam
from gloam.formats.config import describe
from gloam.runs import loop
from gloam.runs.loop import MetricRows
from gloam.runs.python_driver import PythonDriver
from memory import peak, resident


def large_algorithm(cells: int, measures: int) -> gloam.DMS:
    """Build DMS on an archive of random centroids, with solutions of 100 numbers."""
    random = np.random.default_rng(0)
    centroids = random.standard_normal((cells, measures), dtype=np.float32)
    return gloam.DMS.paper(gloam.CVTArchive(centroids, index="exact"), np.zeros(100), 0.5)


def linear(algorithm: gloam.DMS):
    """Return an evaluation that maps solutions linearly to measures."""
    random = np.random.default_rng(1)
    size = (100, algorithm.archive.measure_dim)
    weights = random.standard_normal(size, dtype=np.float32)

    def evaluate(solutions: np.ndarray) -> np.ndarray:
        return solutions @ weights

    return evaluate


def cost(cells: int, measures: int, repeats: int) -> None:
    """Print the time to write and to read a checkpoint."""
    algorithm = large_algorithm(cells, measures)
    driver = PythonDriver(linear(algorithm), algorithm, [0])
    with tempfile.TemporaryDirectory(dir=".") as path:
        folder = gloam.RunFolder(path)
        described = describe(
            algorithm, driver.evaluate, driver="ask-tell", seeds=[0], dataset=None, plan={}
        )
        folder.write_config(*described)
        before = peak()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            folder.write_checkpoint(driver.state, seconds=1.0, keep=2)
            times.append(time.perf_counter() - start)
        size = max(file.stat().st_size for file in Path(path).glob("checkpoint/*")) / 1e6
        median = float(np.median(times))
        waits = max(60.0, 30 * median)
        print(
            f"{cells:,} cells x {measures} measures: {size:,.0f} MB in {median:.1f} s "
            f"({min(times):.1f}-{max(times):.1f}), so one every {waits:.0f} s, "
            f"{100 * median / (waits + median):.1f}% of the time; memory grew by "
            f"{peak() - before:.0f} MB while it was written",
            flush=True,
        )
        start = time.perf_counter()
        driver.restore(lambda like: folder.read_checkpoint(like).state)
        print(f"read in {time.perf_counter() - start:.1f} s", flush=True)


class UntilLate(gloam.evaluators.InProcess):
    """Evaluates for a given time, then ends the run."""

    def __init__(self, seconds: float):
        super().__init__()
        self._end = time.perf_counter() + seconds

    def evaluate(self, *arguments):
        """Evaluate a batch."""
        if time.perf_counter() > self._end:
            raise gloam.errors.WorkerError("the time is over")
        return super().evaluate(*arguments)


def run(cells: int, measures: int, seconds: float) -> None:
    """Print the share of a run's time that checkpoints take at the default interval."""
    algorithm = large_algorithm(cells, measures)
    spent: list[float] = []
    usual, began = gloam.RunFolder.write_checkpoint, time.perf_counter()

    def timed(*arguments, **options):
        start = time.perf_counter()
        usual(*arguments, **options)
        spent.append(time.perf_counter() - start)

    gloam.RunFolder.write_checkpoint = timed
    ends = contextlib.suppress(gloam.errors.WorkerError)
    with tempfile.TemporaryDirectory(dir=".") as path, ends:
        options = {"evaluator": UntilLate(seconds), "progress": False}
        gloam.optimize(linear(algorithm), algorithm, 10**6, run_dir=path, **options)
    total = time.perf_counter() - began
    by_time = spent[:-1]  # the last was written because the run was stopped
    print(
        f"{cells:,} cells x {measures} measures: {len(by_time)} checkpoints by time took "
        f"{sum(by_time):.1f} s of {total:.0f} s, {100 * sum(by_time) / total:.1f}%; at least "
        f"{loop._CHECKPOINT_WAIT:.0f} times as long passes between two",
        flush=True,
    )


def memory(rows: int) -> None:
    """Print the resident memory while rows are logged."""
    with tempfile.TemporaryDirectory(dir=".") as path:
        folder = gloam.RunFolder(path)
        parts = {"driver": "fused", "seeds": [0], "dataset": None, "plan": {}}
        folder.write_config(*describe(None, None, **parts))
        kept = MetricRows(folder)
        names = [f"metric_{number}" for number in range(12)]
        for at in range(rows):
            numbers = dict.fromkeys(names, at / 7)
            kept.add([{"seed": 0, "iteration": at, "seconds": float(at)} | numbers])
            if at % (rows // 5) == 0:
                size = sum(file.stat().st_size for file in Path(path).iterdir()) / 1e6
                print(f"{at:>9,} rows: {resident():.0f} MB, folder {size:.0f} MB", flush=True)
        start = time.perf_counter()
        table = kept.table()
        print(
            f"{len(table):,} rows read and written as one table in "
            f"{time.perf_counter() - start:.1f} s; most ever held {peak():.0f} MB",
            flush=True,
        )


def main() -> int:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cost", "run", "memory"])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--measures", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0, help="length of `run`")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.what == "cost":
        cost(options.cells, options.measures, options.repeats)
    elif options.what == "run":
        run(options.cells, options.measures, options.seconds)
    else:
        memory(options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
