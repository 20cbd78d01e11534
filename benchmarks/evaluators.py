"""Evaluators: efficiency, engines beside one another, overhead per iteration, runs with failures.

python benchmarks/evaluators.py efficiency  # also: engines, overhead, kills, scheduler, failures
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import gloam
from gloam._tools.progress import Silent

DIMENSION, SECONDS = 20, 0.02


def sphere(solution):
    """Evaluate one solution cheaply."""
    return 100.0 - float(np.square(solution).sum()), solution[:2]


def sleeps(solution):
    """Wait for 20 ms, as if a simulator ran on another machine."""
    time.sleep(SECONDS)
    return sphere(solution)


def computes(solution):
    """Use 20 ms of CPU time, however busy the machine is."""
    until = time.process_time() + SECONDS
    while time.process_time() < until:
        pass
    return sphere(solution)


def luck(solution):
    """Return a number from 0 to 1 that depends only on the solution."""
    return float(np.random.default_rng(solution.view(np.uint32)).random())


def unlucky(solution):
    """Fail in one of four ways for 20% of all solutions, and hang for one of 200."""
    chance = luck(solution)
    if chance < 0.005:
        time.sleep(3600)
    if chance < 0.07:
        raise RuntimeError("the simulation diverged")
    if chance < 0.135:
        return float("nan"), solution[:2]
    if chance < 0.2:
        return 1.0, solution[:3]
    return sphere(solution)


def algorithm(num_emitters=4, batch_size=25):
    archive = gloam.GridArchive((30, 30), -10, 10, f_min=-1000)
    start = np.zeros(DIMENSION)
    return gloam.DMS.paper(archive, start, 0.5, num_emitters=num_emitters, batch_size=batch_size)


def local_cluster(workers):
    from distributed import LocalCluster

    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")


def optimize(function, iterations, **options):
    options = {"seeds": [0], "progress": False, "per_solution": True} | options
    return gloam.optimize(function, algorithm(), iterations, **options)


def same(one, other):
    """Return whether two sets of elites are bitwise equal."""
    names = ("cells", "solutions", "objectives", "measures")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def efficiency(workers, batches):
    """Compare the time of batches of 200 evaluations with the ideal."""
    solutions = np.random.default_rng(0).normal(size=(200, DIMENSION)).astype(np.float32)
    ideal = batches * len(solutions) * SECONDS / workers
    with local_cluster(workers) as cluster:
        for evaluator in (gloam.evaluators.Processes(workers), gloam.evaluators.Dask(cluster)):
            with evaluator:
                for function in (sleeps, computes):
                    one = gloam.evaluators.PerSolution(function)
                    for _ in range(2):  # workers start, chunks are sized
                        evaluator.evaluate(one, solutions)
                    start = time.perf_counter()
                    for _ in range(batches):
                        evaluator.evaluate(one, solutions)
                    share = ideal / (time.perf_counter() - start)
                    print(f"{type(evaluator).__name__:10} {function.__name__:9} {share:.1%}")


def short(solution):
    """Wait for 1 ms."""
    time.sleep(0.001)
    return sphere(solution)


def long(solution):
    """Wait for 1 s."""
    time.sleep(1.0)
    return sphere(solution)


@contextlib.contextmanager
def engines(workers):
    """Yield the evaluators whose packages are installed, by name."""
    with contextlib.ExitStack() as stack:
        found = {"in process": gloam.evaluators.InProcess()}
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        found["threads"] = gloam.evaluators.Executors(threads)
        found["Processes"] = gloam.evaluators.Processes(workers)
        with contextlib.suppress(ImportError):
            found["Dask"] = gloam.evaluators.Dask(stack.enter_context(local_cluster(workers)))
        with contextlib.suppress(ImportError):
            import ray

            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
            stack.callback(ray.shutdown)
            found["Ray"] = gloam.evaluators.Ray()
        with contextlib.suppress(ImportError):
            import submitit

            executor = submitit.AutoExecutor(tempfile.mkdtemp(), cluster="local")
            found["Submitit (local)"] = gloam.evaluators.Submitit(executor, jobs=workers)
        yield found


def compare_engines(workers, batches):
    """Measure rows per second, and the overhead per row, of evaluations of 1 ms and of 1 s."""
    random = np.random.default_rng(0)
    print("| engine | 1 ms: rows/s | overhead per row | 1 s: rows/s | overhead per row |")
    print("|---|---|---|---|---|")
    with engines(workers) as found:
        for name, evaluator in found.items():
            used, cells = 1 if name == "in process" else workers, []
            for function, seconds, number in ((short, 0.001, 400), (long, 1.0, 2 * workers)):
                solutions = random.normal(size=(number, DIMENSION)).astype(np.float32)
                one = gloam.evaluators.PerSolution(function)
                with evaluator:
                    evaluator.evaluate(one, solutions)  # workers start, chunks are sized
                    start = time.perf_counter()
                    for _ in range(batches):
                        evaluator.evaluate(one, solutions)
                    spent = (time.perf_counter() - start) / (batches * number)
                extra = spent * used - seconds
                cells.append(f"{1 / spent:.3g} | {extra * 1e3:.2f} ms")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def overhead(workers, iterations):
    """Measure the overhead per iteration of 100 evaluations of 20 ms, which take 1 s in total."""
    ideal = 100 * SECONDS / workers
    with gloam.evaluators.Processes(workers) as evaluator:
        marks = []

        class Marks(Silent):
            def update(self, *arguments):
                marks.append((time.perf_counter(), time.process_time()))

        optimize(sleeps, iterations, evaluator=evaluator, progress=Marks())
    spent, processor = np.median(np.diff(marks[2:], axis=0), axis=0)
    own = spent - ideal
    print(
        f"batch of {ideal:.2f} s: {own * 1e3:.0f} ms more per iteration ({own / ideal:.1%}), "
        f"{processor * 1e3:.0f} ms of processor time in gloam's process"
    )


def running_workers(cluster):
    """Return the ids of workers that have started: Dask gives up one that dies while starting."""
    processes = [nanny.process for nanny in list(cluster.workers.values())]
    found = [one.pid for one in processes if one and one.status.name == "running"]
    return [pid for pid in found if pid]


def kills(iterations, every):
    """Kill one of four Dask workers every two seconds."""
    import dask

    plain = optimize(sphere, iterations)
    # Dask closes a worker for good if it is still restarting this long after its loss.
    patience = {"distributed.deploy.lost-worker-timeout": "1 day"}
    with dask.config.set(patience), local_cluster(4) as cluster:
        done, present = threading.Event(), []

        def kill():
            while not done.wait(every):
                found = running_workers(cluster)
                if found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(random.choice(found), signal.SIGKILL)
                        present.append(len(found))

        thread = threading.Thread(target=kill)
        thread.start()
        start = time.perf_counter()
        try:
            found = optimize(sleeps, iterations, evaluator=gloam.evaluators.Dask(cluster))
        finally:
            seconds = time.perf_counter() - start
            done.set()
            thread.join()
    print(
        f"{iterations} iterations in {seconds:.0f} s, {len(present)} workers killed (one every "
        f"{seconds / max(1, len(present)):.1f} s, of {np.mean(present):.1f} that ran), "
        f"{found.metrics['failed_total'].iloc[-1]} failed evaluations, archive equal: "
        f"{same(found.elites, plain.elites)}"
    )


class Kills(Silent):
    """Kills a process after a given iteration."""

    def __init__(self, process, at):
        self.process, self.at = process, at

    def update(self, iteration, *numbers):
        """Kill the process at the given iteration."""
        if iteration == self.at:
            self.process.kill()


def scheduler(iterations):
    """Kill the scheduler, and resume the run on a new cluster."""
    import subprocess

    plain = optimize(sphere, iterations)
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(2):
            file = Path(folder) / f"scheduler-{attempt}.json"
            base = [sys.executable, "-m", "distributed.cli."]
            options = ["--scheduler-file", str(file), "--no-dashboard"]
            place = [*base[:2], base[2] + "dask_scheduler", *options, "--port", "0"]
            processes = [subprocess.Popen(place, stderr=subprocess.DEVNULL)]
            for _ in range(2):
                worker = [*base[:2], base[2] + "dask_worker", *options, "--nthreads", "1"]
                processes.append(subprocess.Popen(worker, stderr=subprocess.DEVNULL))
            while not file.exists():
                time.sleep(0.2)
            from distributed import Client

            client = Client(scheduler_file=str(file))
            client.wait_for_workers(2)
            try:
                found = optimize(
                    sleeps,
                    iterations,
                    evaluator=gloam.evaluators.Dask(client),
                    run_dir=Path(folder) / "run",
                    resume=True,
                    progress=Kills(processes[0], at=iterations // 3),
                )
                print(f"resumed: archive equal: {same(found.elites, plain.elites)}")
            except gloam.errors.WorkerError as error:
                print(error, *error.__notes__)
            for process in processes:
                process.kill()
            client.close(timeout=2)


def failures(iterations, workers):
    """Compare a run with 20% failures with a clean run with as many successful evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        evaluator = gloam.evaluators.Processes(workers, timeout=1.0)
        found = optimize(unlucky, iterations, evaluator=evaluator, run_dir=folder)
        seconds = time.perf_counter() - start
        table = gloam.RunFolder(folder).read_failures()
    total = int(found.metrics["failed_total"].iloc[-1])
    good = iterations * 100 - total
    clean = optimize(sphere, round(good / 100))
    elites_failed = sum(luck(solution) < 0.2 for solution in found.elites.solutions)
    once = not table.duplicated(["seed", "iteration", "row"]).any()
    print(f"{iterations} iterations in {seconds:.0f} s, {total} of {iterations * 100} failed")
    print(table["kind"].value_counts().to_string())
    print(f"logged {len(table)}, each once: {once}; failed elites: {elites_failed}")
    ratio = found.metrics["qd_score"].iloc[-1] / clean.metrics["qd_score"].iloc[-1]
    print(f"QD score against {round(good / 100)} clean iterations: {ratio:.3f}")


def main() -> int:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ["efficiency", "engines", "overhead", "kills", "scheduler", "failures"]
    parser.add_argument("what", choices=names)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--iterations", type=int)
    given = parser.parse_args()
    if given.what == "efficiency":
        efficiency(given.workers, given.iterations or 5)
    elif given.what == "engines":
        compare_engines(given.workers, given.iterations or 3)
    elif given.what == "overhead":
        overhead(given.workers, given.iterations or 15)
    elif given.what == "kills":
        kills(given.iterations or 200, 2.0)
    elif given.what == "scheduler":
        scheduler(given.iterations or 60)
    else:
        failures(given.iterations or 100, given.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
