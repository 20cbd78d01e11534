"""Run the foreign problems and print the tables.

    make foreign
    .venv-foreign/bin/python benchmarks/foreign/run.py --half looking --scale 0.01 --seeds 2

Finished runs are in OUT/runs.csv, and are not repeated: a run that was killed continues with the
next one. `report.py OUT` makes the tables and the figure again. Scores of problems with noise are
corrected: of 100 new evaluations of each elite. Those that the search reported are in curves.csv.
"""

import argparse
import dataclasses
import importlib.util
import itertools
import multiprocessing
import os
import platform
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import gloam
from contenders import CONTENDERS, OUTSIDE
from gloam.runs.reevaluation import Problem as NoisyProblem
from gloam.runs.reevaluation import corrected
from problems import PROBLEMS, Problem, Setup
from report import write_report

REPEATS = 100
"""Evaluations of each elite at the end of a run with noise."""


@dataclasses.dataclass
class Runner:
    """Runs contenders on problems and appends the results to two files."""

    out: Path
    scale: float
    seeds: list[int]
    workers: int

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)

    @cached_property
    def pool(self) -> ProcessPoolExecutor:
        """Processes for simulators, shared by all runs: each takes seconds to start."""
        return ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"))

    def missing_seeds(self, problem: Problem, contender: str) -> list[int]:
        """Return the seeds that are not in the file."""
        file = self.out / "runs.csv"
        if not file.exists():
            return self.seeds
        rows = pd.read_csv(file)
        is_this = (rows["problem"] == problem.name) & (rows["contender"] == contender)
        done = set(rows[is_this & (rows["scale"] == self.scale)]["seed"])
        return [seed for seed in self.seeds if seed not in done]

    def run(self, problem: Problem, setup: Setup, contender: str, build: Any) -> None:
        """Run the missing seeds of a contender of gloam: on a GPU at once if JAX can trace it."""
        algorithm = build(setup)
        size = algorithm.emitter.num_solutions
        iterations = max(1, round(self.scale * problem.evaluations / size))
        options = {"log_every": max(1, iterations // 20), "progress": False}
        seeds = self.missing_seeds(problem, contender)
        at_once = setup.is_traced and jax.default_backend() == "gpu"
        for part in [seeds] if at_once else [[seed] for seed in seeds]:
            began = time.perf_counter()
            if setup.is_traced:
                result = gloam.run(setup.evaluate, algorithm, iterations, seeds=part, **options)
            else:
                options["per_solution"] = setup.per_solution
                if setup.per_solution and self.workers > 1:
                    options["evaluator"] = self.pool
                result = gloam.optimize(
                    setup.evaluate, algorithm, iterations, seeds=part, **options
                )
            seconds = (time.perf_counter() - began) / len(part)
            by_seed = result.elites_by_seed
            if problem.is_noisy:
                by_seed = result.reevaluated(REPEATS).elites_by_seed
            found = {seed: elites.objectives for seed, elites in by_seed.items()}
            self._append(problem, setup, contender, found, iterations * size, seconds)
            columns = ["seed", "evaluations", "qd_score", "f_min", "num_elites"]
            curves = result.metrics[columns].assign(
                problem=problem.name, contender=contender, scale=self.scale
            )
            append(self.out / "curves.csv", curves)

    def run_outside(self, problem: Problem, setup: Setup, contender: str) -> None:
        """Run the missing seeds of another library's search."""
        evaluations = round(self.scale * problem.evaluations)
        for seed in self.missing_seeds(problem, contender):
            began = time.perf_counter()
            solutions, objectives, measures = OUTSIDE[contender](setup, evaluations, seed)
            seconds = time.perf_counter() - began
            if problem.is_noisy:
                elites = gloam.interop.elites_from_arrays(
                    setup.archive, solutions, objectives, measures
                )
                again = corrected(
                    {seed: elites}, NoisyProblem(setup.evaluate, True), REPEATS, setup.batch
                )
                objectives = again.elites.objectives
            self._append(problem, setup, contender, {seed: objectives}, evaluations, seconds)

    def _append(
        self,
        problem: Problem,
        setup: Setup,
        contender: str,
        found: dict[int, np.ndarray],
        evaluations: int,
        seconds: float,
    ) -> None:
        rows = [
            {
                "problem": problem.name,
                "group": problem.group,
                "half": problem.half,
                "contender": contender,
                "seed": seed,
                "scale": self.scale,
                "evaluations": evaluations,
                "num_cells": setup.archive.num_cells,
                "num_elites": len(objectives),
                "sum": float(np.sum(objectives, dtype=np.float64)),
                "lowest": float(np.min(objectives, initial=np.inf)),
                "best": float(np.max(objectives, initial=-np.inf)),
                "f_min": setup.archive.f_min,
                "seconds": round(seconds, 2),
                "device": f"{jax.default_backend()} {platform.machine()}",
            }
            for seed, objectives in found.items()
        ]
        append(self.out / "runs.csv", pd.DataFrame(rows))
        scores = [row["sum"] - row["num_elites"] * (row["f_min"] or 0.0) for row in rows]
        coverage = np.mean([row["num_elites"] / row["num_cells"] for row in rows])
        print(
            f"{problem.name:45} {contender:20} {np.mean(scores):12,.5g} "
            f"{coverage:8.2%} {seconds:8.1f} s per seed",
            flush=True,
        )


def append(file: Path, rows: pd.DataFrame) -> None:
    """Append rows to a CSV file in one write."""
    with open(file, "a") as stream:
        stream.write(rows.to_csv(index=False, header=stream.tell() == 0))


def variants(file: Path) -> dict[str, Any]:
    """Return the dict ``CONTENDERS`` of a Python file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CONTENDERS


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="*", help="names or groups; by default all")
    parser.add_argument("--half", choices=["looking", "held-out"], help="by default both")
    parser.add_argument("--contenders", nargs="*", help="names; by default all")
    parser.add_argument("--variants", type=Path, help="Python file with a dict CONTENDERS")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the evaluations")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="for simulators")
    parser.add_argument("--out", type=Path, default=Path("runs/foreign"))
    parser.add_argument("--list", action="store_true", help="list the problems and stop")
    options = parser.parse_args()
    chosen = [
        problem
        for problem in PROBLEMS.values()
        if not options.problems or {problem.name, problem.group} & set(options.problems)
        if options.half is None or problem.half == options.half.replace("-", " ")
        # The Brax problems take hours on a CPU, so there they have to be named.
        if not problem.needs_gpu or options.problems or jax.default_backend() == "gpu"
    ]
    if options.list:
        columns = ["name", "group", "half", "evaluations", "is_noisy", "needs_gpu"]
        print(pd.DataFrame(map(dataclasses.asdict, chosen))[columns].to_string(index=False))
        return
    builders = CONTENDERS | (variants(options.variants) if options.variants else {})
    names = options.contenders or [*builders, *OUTSIDE]
    unknown = set(names) - {*builders, *OUTSIDE}
    if unknown or not chosen:
        parser.error(f"unknown contenders {sorted(unknown)}" if unknown else "no such problem")
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    runner = Runner(options.out, options.scale, seeds, options.workers)
    failed = []
    for problem in chosen:
        wanted = [name for name in names if name in builders or name in problem.outside]
        if not any(runner.missing_seeds(problem, name) for name in wanted):
            continue
        try:
            setup = problem.build()
        except ImportError as error:
            failed.append(f"{problem.name}: {error}")
            continue
        for name in wanted:
            if not runner.missing_seeds(problem, name):
                continue
            try:
                if name in builders:
                    runner.run(problem, setup, name, builders[name])
                else:
                    runner.run_outside(problem, setup, name)
            except Exception as error:  # the other runs do not depend on this one
                traceback.print_exc()
                failed.append(f"{problem.name}, {name}: {error}")
        # The programs of one problem are of no use to the next, and fill the memory.
        jax.clear_caches()
    print(write_report(options.out))
    if failed:
        raise SystemExit("\n".join(itertools.chain(["Failed:"], failed)))


if __name__ == "__main__":
    main()
