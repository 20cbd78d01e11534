"""Compare asynchronous and synchronous search with log-normal evaluation times (sigma 1).

`throughput` sleeps in a pool of threads. `quality` compares QD scores at equal evaluations; its
evaluations take time on a simulated clock only, so that it measures the search and not the machine.
"""

import argparse
import heapq
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

import gloam
from gloam.domains import LinearProjection


def seconds_of(solution: np.ndarray, median: float) -> float:
    """Return a log-normal time that depends only on the solution: the same for both modes."""
    seed = np.frombuffer(np.ascontiguousarray(solution, np.float32).tobytes(), np.uint32)
    return median * float(np.exp(np.random.default_rng(seed).normal()))


def algorithm_of(domain: LinearProjection, emitters: int, batch_size: int) -> gloam.DMS:
    """Build DMS with the paper's settings except for the sizes."""
    edge = domain.edge
    if domain.measure_dim == 2:
        archive = gloam.GridArchive((100, 100), -edge, edge, f_min=0)
    else:
        shape = (2000, domain.measure_dim)
        centroids = np.random.default_rng(0).uniform(-edge, edge, shape)
        archive = gloam.CVTArchive(centroids, -edge, edge, f_min=0)
    return gloam.DMS.paper(archive, domain.x0, 0.5, num_emitters=emitters, batch_size=batch_size)


def synchronous(evaluate, algorithm: gloam.DMS, seed: int, iterations: int) -> list[float]:
    """Return the QD scores of the synchronous search after each iteration."""
    search, scores = gloam.Search(algorithm, seed), []
    for _ in range(iterations):
        search.tell(*map(np.asarray, evaluate(search.ask())[:2]))
        scores.append(search.metrics()["qd_score"])
    return scores


def asynchronous(
    evaluate, algorithm: gloam.DMS, seed: int, iterations: int, workers: int
) -> list[float]:
    """Return the QD scores of the asynchronous search, with workers on a simulated clock."""
    search, scores, now = gloam.AsyncSearch(algorithm, seed), [], 0.0
    busy: list[tuple[float, int, gloam.searches.Ticket]] = []
    while search.iteration < iterations:
        free = workers - len(busy)
        for ticket in search.ask(free) if free else []:
            done = now + seconds_of(ticket.solution, 1.0)
            heapq.heappush(busy, (done, ticket.number, ticket))
        now, _, ticket = heapq.heappop(busy)
        objectives, measures = evaluate(ticket.solution[None])[:2]
        search.tell(ticket, np.asarray(objectives)[0], np.asarray(measures)[0])
        if search.iteration > len(scores):
            scores.append(search.metrics()["qd_score"])
    return scores


def quality(arguments: argparse.Namespace) -> None:
    """Print QD scores of both modes, and their ratio at the end and over the whole run."""
    print("| measures | workers | iterations | synchronous | asynchronous | ratio | area ratio |")
    print("|---|---|---|---|---|---|---|")
    for measure_dim in arguments.measures:
        domain = LinearProjection(measure_dim=measure_dim)
        evaluate = jax.jit(domain)
        algorithm = algorithm_of(domain, arguments.emitters, arguments.batch_size)
        seeds, iterations = range(arguments.seeds), arguments.iterations
        plain = [synchronous(evaluate, algorithm, seed, iterations) for seed in seeds]
        for workers in arguments.workers:
            runs = [asynchronous(evaluate, algorithm, s, iterations, workers) for s in seeds]
            last = [np.mean([scores[-1] for scores in each]) for each in (plain, runs)]
            area = np.mean(runs) / np.mean(plain)
            print(
                f"| {measure_dim} | {workers} | {iterations} | {last[0]:,.1f} | {last[1]:,.1f} | "
                f"{last[1] / last[0]:.3f} | {area:.3f} |",
                flush=True,
            )


class Sleeper:
    """Evaluates solutions in threads that sleep before they return."""

    def __init__(self, domain: LinearProjection, median: float, workers: int):
        self.pool = ThreadPoolExecutor(workers)
        self._domain, self._median = jax.jit(domain), median

    def one(self, solutions: np.ndarray):
        """Evaluate one row."""
        time.sleep(seconds_of(solutions[0], self._median))
        objectives, measures = self._domain(solutions)[:2]
        return np.asarray(objectives), np.asarray(measures)

    def batch(self, solutions: np.ndarray):
        """Evaluate a batch and wait for all of its rows."""
        found = list(self.pool.map(self.one, solutions[:, None]))
        return np.concatenate([f for f, _ in found]), np.concatenate([m for _, m in found])


def throughput(arguments: argparse.Namespace) -> None:
    """Print the evaluations per second of both modes, as the median of several repetitions."""
    print("| workers | solutions | per worker | synchronous | asynchronous | ratio |")
    print("|---|---|---|---|---|---|")
    domain = LinearProjection(measure_dim=2)
    for workers, emitters, batch_size in arguments.sizes:
        sleeper = Sleeper(domain, arguments.median, workers)
        algorithm = algorithm_of(domain, emitters, batch_size)
        number = emitters * batch_size
        iterations = max(3, arguments.evaluations // number)
        rates: dict[bool, list[float]] = {False: [], True: []}
        for repeat in range(arguments.repeats + 1):  # the first compiles
            for mode in rates:
                function = sleeper.one if mode else sleeper.batch
                options = {"asynchronous": True, "evaluator": sleeper.pool} if mode else {}
                seeds = [repeat]
                began = time.perf_counter()
                gloam.optimize(
                    function,
                    algorithm,
                    iterations if repeat else 1,
                    seeds=seeds,
                    progress=False,
                    **options,
                )
                if repeat:
                    rates[mode].append(number * iterations / (time.perf_counter() - began))
        sleeper.pool.shutdown()
        plain, own = (statistics.median(rates[mode]) for mode in rates)
        print(
            f"| {workers} | {number} | {number / workers:.1f} | {plain:.1f}/s | {own:.1f}/s | "
            f"{own / plain:.2f} |",
            flush=True,
        )


def main() -> int:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("quality")
    one.add_argument("--measures", nargs="+", type=int, default=[2, 10])
    one.add_argument("--workers", nargs="+", type=int, default=[16, 128])
    one.add_argument("--seeds", type=int, default=5)
    one.add_argument("--iterations", type=int, default=100)
    one.add_argument("--emitters", type=int, default=15)
    one.add_argument("--batch-size", type=int, default=36)
    one.set_defaults(function=quality)
    two = commands.add_parser("throughput")
    two.add_argument("--median", type=float, default=0.05, help="median seconds of an evaluation")
    two.add_argument("--evaluations", type=int, default=1000)
    two.add_argument("--repeats", type=int, default=3)
    two.set_defaults(
        function=throughput, sizes=[(8, 5, 12), (16, 5, 12), (16, 15, 36), (64, 15, 36)]
    )
    arguments = parser.parse_args()
    arguments.function(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
