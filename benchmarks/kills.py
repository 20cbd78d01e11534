"""Kill runs at random moments, resume them, and compare them with an uninterrupted run.

A kill is a SIGKILL while the process starts and compiles, or a random time after it has written a
checkpoint. A run that finishes is compared bit for bit, and the next one begins, until the number
of kills is reached. The exit code is 1 if a run differs, a folder cannot be read, or a file or a
process is left behind. `optimize` evaluates in two worker processes.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import gloam

_USER_CODE = """
import numpy as np
x0, sigma0 = np.zeros(4), 0.3
def evaluate(x):
    return np.tanh(x[:, :2])
"""
# Worker processes import it.
_SIMULATION = """
import numpy as np

def simulate(solution):
    return 1 - np.square(solution).mean(), np.tanh(solution[:2])
"""
_PROGRAM = """
import sys
import numpy as np
import gloam
from simulation import simulate

def main(driver, out, iterations, every):
    few = dict(num_emitters=2, batch_size=6, num_init_points=20, num_empty_points=5)
    options = dict(run_dir=out, resume=True, progress=False, checkpoint_every=every, log_every=7)
    if driver == "optimize":
        options |= dict(evaluator=gloam.evaluators.Processes(2), per_solution=True)
        algorithm = gloam.DMS.paper(gloam.GridArchive((12, 12), -1, 1), np.zeros(4), 0.3, **few)
        gloam.optimize(simulate, algorithm, iterations, **options)
        return
    domain, archive = gloam.domains.Arm(num_joints=4), gloam.GridArchive((12, 12), -4, 4)
    algorithm = gloam.DMS.paper(archive, domain.x0, 0.3, **few)
    if driver == "map-elites":
        algorithm = gloam.MAPElites(archive, domain.x0, 0.3, batch_size=12)
    gloam.run(domain, algorithm, iterations, seeds=2, **options)

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""
DRIVERS = ("fused", "optimize", "fill")
_STARTING = 0.2  # share of the kills that come before anything is written
_POLL_SECONDS = 0.002
_SECONDS_TO_END = 20  # for workers whose parent was killed while they started


class Subject:
    """One kind of run, in a folder with the files that it needs.

    Args:
        driver: One of `DRIVERS`; or "map-elites", the fused driver with an algorithm that compiles
            fast.
        work: A folder.
        iterations: Number of iterations.
        every: Iterations between two checkpoints.
    """

    def __init__(self, driver: str, work: Path, iterations: int, every: int):
        self.driver, self.work, self.iterations, self.every = driver, work, iterations, every
        self._errors = work / "errors.txt"
        (work / "program.py").write_text(_PROGRAM)
        (work / "simulation.py").write_text(_SIMULATION)
        (work / "mine.py").write_text(_USER_CODE)
        # Processes that are killed repeatedly should not compile each time.
        self._environment = {
            "JAX_COMPILATION_CACHE_DIR": str(work / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        } | os.environ
        items = np.random.default_rng(0).uniform(-1, 1, (60, 2))
        np.save(work / "items.npy", items.astype(np.float32))

    def start(self, name: str) -> subprocess.Popen:
        """Begin or continue the run."""
        numbers = [str(self.iterations), str(self.every)]
        command = ["program.py", self.driver, name, *numbers]
        if self.driver == "fill":
            command = ["-m", "gloam", "fill", "mine.py", "--dataset", "items.npy", "--out", name]
            command += ["--iterations", numbers[0], "--checkpoint-every", numbers[1]]
            command += ["--log-every", "7", "--emitters", "2", "--batch-size", "6"]
            command += ["--resume", "--quiet"]
        # A file, and not a pipe: reading a pipe to its end would wait for worker processes.
        with open(self._errors, "w") as errors:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=self.work,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def must_have_ended_well(self, process: subprocess.Popen, name: str) -> None:
        """Wait for a run to end.

        Raises:
            RuntimeError: It ended with an error.
        """
        if process.wait() != 0:
            raise RuntimeError(f"'{name}' could not be run:\n{self._errors.read_text()}")

    def processes_left(self) -> list[str]:
        """Return the ids of processes that still run in the folder a while after the last kill."""
        for _ in range(_SECONDS_TO_END):
            left = [path.parent for path in Path("/proc").glob("[0-9]*/cwd") if self._is_here(path)]
            if not left:
                return []
            time.sleep(1)
        return [path.name for path in left]

    def _is_here(self, path: Path) -> bool:
        try:
            return path.readlink() == self.work.resolve()
        except OSError:  # it has ended, or belongs to another user
            return False

    def content(self, name: str) -> tuple[list[np.ndarray], pd.DataFrame, list[str]]:
        """Return the elites of all seeds, the metrics without times, and the names of all files."""
        folder = gloam.RunFolder(self.work / name)
        elites = [folder.read_archive(seed) for seed in folder.read_config().seeds]
        arrays = [
            array
            for one in elites
            for array in (one.cells, one.solutions, one.objectives, one.measures)
        ]
        files = sorted(
            str(path.relative_to(folder.path)) for path in folder.path.rglob("*") if path.is_file()
        )
        return arrays, folder.read_metrics().drop(columns="seconds"), files


def killed(subject: Subject, name: str, draw: random.Random, startup: float) -> tuple[bool, float]:
    """Run until a random moment; return whether it was killed, and the time to a checkpoint."""
    checkpoints = subject.work / name / "checkpoint"

    def written() -> set[str]:
        return {path.name for path in checkpoints.glob("[0-9]*.npz")}

    before = written()
    began = time.perf_counter()
    early = draw.uniform(0, startup) if draw.random() < _STARTING else None
    late = draw.expovariate(10.0)
    process = subject.start(name)
    first = None
    while process.poll() is None:
        now = time.perf_counter() - began
        if first is None and written() - before:
            first = now
        due = first is not None and now > first + late
        if due or (early is not None and now > early):
            process.kill()
            process.wait()
            return True, first or startup
        time.sleep(_POLL_SECONDS)
    subject.must_have_ended_well(process, name)
    return False, first or startup


def kill_runs(subject: Subject, num_kills: int, seed: int) -> tuple[int, int]:
    """Kill runs ``num_kills`` times; return the number of runs, and of those that differ."""
    subject.must_have_ended_well(subject.start("whole"), "whole")
    expected = subject.content("whole")
    draw, startup = random.Random(seed), 3.0
    kills, runs, different = 0, 0, 0
    while kills < num_kills:
        name, going = f"killed-{runs}", True
        while going:
            if kills < num_kills:
                going, startup = killed(subject, name, draw, startup)
                kills += going
            else:
                subject.must_have_ended_well(subject.start(name), name)
                going = False
        runs += 1
        different += not _same(subject.content(name), expected)
        print(f"{subject.driver}: {kills} kills, {runs} runs, {different} differ", flush=True)
    if left := subject.processes_left():
        raise RuntimeError(f"processes were left behind: {', '.join(left)}")
    return runs, different


def _same(found: tuple, expected: tuple) -> bool:
    arrays = all(np.array_equal(*pair) for pair in zip(found[0], expected[0], strict=True))
    return arrays and found[1].equals(expected[1]) and found[2] == expected[2]


def main(arguments: list[str] | None = None) -> int:
    """Kill runs of each driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drivers", nargs="*", default=DRIVERS)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--every", type=int, default=5, help="iterations between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    failed = 0
    for driver in options.drivers:
        with tempfile.TemporaryDirectory() as work:
            subject = Subject(driver, Path(work), options.iterations, options.every)
            failed += kill_runs(subject, options.kills, options.seed)[1]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
