"""Take each part out of `gloam.DMS`, or change one of its constants, and compare the QD scores.

    python benchmarks/ablation.py run --out runs/ablation --centroids-dir DIR
    python benchmarks/ablation.py run --variants cell=1 cell=100 --problems 10d-lp-sphere vectors
    python benchmarks/ablation.py table runs/ablation

Problems are the paper's domains and those of benchmarks/foreign, in an environment that has their
packages (`make foreign`). Finished runs are in OUT/scores.csv and are not repeated. Every variant
of a problem runs in a process of its own, because constants are compiled into the programs.
"""

import argparse
import importlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

FOREIGN = Path(__file__).parent / "foreign"
DOMAINS = (
    "2d-lp-sphere",
    "10d-lp-sphere",
    "20d-lp-sphere",
    "50d-lp-sphere",
    "2d-lp-rastrigin",
    "10d-lp-rastrigin",
    "2d-lp-flat",
    "10d-lp-flat",
    "arm",
)
SUITE = (
    "qdax-arm",
    "qdax-sphere",
    "continous-islands-10",
    "continous-islands-30",
    "archimedean-spiral-v0-angle-euclidean",
    "kheperax-standard",
    "latent-digits",
    "pendulum",
    "vectors",
    "noisy",
)
"""Problems for looking on which scores of algorithms differ, one or two of each group."""

PARTS: dict[str, dict[str, Any]] = {
    "refinement": {},
    "first_visit": {"first_visit": None},
    "best_of": {},
    "differences": {},
    "estimated units": {},
    "RestartWhenIdle": {},
}
"""Parts that a variant ``no PART`` lacks, and the arguments of `gloam.DMS` that remove them."""
CONSTANTS: dict[str, tuple[str, str]] = {
    "cell": ("gloam.emitters.mixture", "_CELL"),
    "least": ("gloam.emitters.mixture", "_LEAST"),
    "shortest wait": ("gloam.emitters.rules", "_SHORTEST_WAIT"),
    "deviations": ("gloam.discounts.units", "_DEVIATIONS"),
    "step": ("gloam.discounts.units", "_STEP"),
    "first": ("gloam.discounts.units", "_FIRST"),
}
"""Constants that a variant ``NAME=VALUE`` changes."""


def changed(variant: str, build: Callable[..., Any], ceiling: float | None) -> Any:
    """Build a variant of `gloam.DMS`.

    Args:
        variant: ``"DMS"``, ``"no PART"`` or ``"NAME=VALUE"``.
        build: Builds `gloam.DMS` with the arguments that change.
        ceiling: Largest objective, for the variant without estimated units.
    """
    from gloam import Algorithm
    from gloam.emitters import AdaptiveMixture, BasicRestart, Mixture, Recombination

    class Lines(Recombination):
        @property
        def num_differences(self) -> int:
            return 0

    if "=" in variant:
        name, value = variant.split("=")
        module, constant = CONSTANTS[name]
        setattr(importlib.import_module(module), constant, float(value))
    part = variant.removeprefix("no ")
    options = dict(PARTS.get(part, {}))
    if part == "RestartWhenIdle":
        options["restart"] = BasicRestart()
    algorithm = build(**options)
    if part == "estimated units":
        algorithm = build(floor=algorithm.archive.f_min or 0.0, ceiling=ceiling)
    cma, moves, swaps = algorithm.emitter.emitters
    common = {"batch_size": moves.batch_size, "bounds": moves.bounds}
    start = moves.x0, moves.sigma0
    emitter = {
        "refinement": lambda: Mixture([cma, moves]),
        "best_of": lambda: AdaptiveMixture(
            [cma, Recombination(*start, best_of=1, **common), swaps]
        ),
        "differences": lambda: AdaptiveMixture([cma, Lines(*start, **common), swaps]),
    }.get(part, lambda: algorithm.emitter)()
    return Algorithm(emitter, algorithm.archive, algorithm.discount, variant)


def run_domain(
    variant: str, name: str, seeds: int, iterations: int, folder: str | None
) -> list[dict[str, Any]]:
    """Run a variant on a domain of the paper and return a row for each seed."""
    import gloam
    from gloam.experiments.presets import preset_algorithm
    from gloam.experiments.study import domain_named

    domain = domain_named(name, folder)
    build = lambda **options: preset_algorithm("dms", domain, **options)  # noqa: E731
    algorithm = changed(variant, build, 1.0)
    log_every = max(1, iterations // 10)
    result = gloam.run(
        domain, algorithm, iterations, seeds=range(seeds), log_every=log_every, progress=False
    )
    return result.metrics[["seed", "iteration", "qd_score", "coverage"]].to_dict("records")


def run_foreign(variant: str, name: str, seeds: int) -> list[dict[str, Any]]:
    """Run a variant on a problem of the suite and return a row for each seed."""
    sys.path.insert(0, str(FOREIGN))
    import gloam
    from contenders import default
    from problems import PROBLEMS
    from run import REPEATS

    problem = PROBLEMS[name]
    setup = problem.build()
    build = lambda **options: default(setup, **options)  # noqa: E731
    algorithm = changed(variant, build, setup.f_max)
    iterations = round(problem.evaluations / algorithm.emitter.num_solutions)
    result = gloam.run(
        setup.evaluate,
        algorithm,
        iterations,
        seeds=range(seeds),
        log_every=max(1, iterations // 10),
        progress=False,
    )
    if not problem.is_noisy:
        rows = result.metrics[["seed", "iteration", "qd_score", "coverage"]]
        return rows.to_dict("records")
    again = result.reevaluated(REPEATS)
    return [
        {"seed": seed, "iteration": iterations, "qd_score": one.qd_score, "coverage": one.coverage}
        for seed, one in again.elites_by_seed.items()
    ]


def run_one(
    variant: str, name: str, seeds: int, iterations: int, folder: str | None
) -> pd.DataFrame:
    """Run a variant on a problem."""
    began = time.perf_counter()
    if name in DOMAINS:
        rows = run_domain(variant, name, seeds, iterations, folder)
    else:
        rows = run_foreign(variant, name, seeds)
    seconds = round(time.perf_counter() - began, 1)
    return pd.DataFrame(rows).assign(variant=variant, problem=name, seconds=seconds)


def run_all(options: argparse.Namespace) -> None:
    """Run all variants of all problems that are not in the file yet."""
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "scores.csv"
    done: set[tuple[str, str]] = set()
    if file.exists():
        done = {tuple(pair) for pair in pd.read_csv(file)[["variant", "problem"]].to_numpy()}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, max_tasks_per_child=1) as pool:
        arguments = options.seeds, options.iterations, options.centroids_dir
        tasks = {
            pool.submit(run_one, variant, name, *arguments): (variant, name)
            for name in options.problems
            for variant in options.variants
            if (variant, name) not in done
        }
        for task in as_completed(tasks):
            try:
                rows = task.result()
            except Exception:  # the others do not depend on it
                traceback.print_exc()
                continue
            rows.to_csv(file, mode="a", index=False, header=not file.exists())
            last = rows[rows["iteration"] == rows["iteration"].max()]
            print(*tasks[task], round(last["qd_score"].mean(), 2), last["seconds"].iloc[0], flush=True)


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the change of the final QD score against DMS in percent.

    A star marks changes with p < 0.05 in Welch's test.
    """
    from gloam.experiments.statistics import games_howell

    last = scores[scores["iteration"] == scores.groupby("problem")["iteration"].transform("max")]
    rows: dict[str, dict[str, str]] = {}
    for (problem, variant), part in last.groupby(["problem", "variant"], sort=False):
        default = last[(last["problem"] == problem) & (last["variant"] == "DMS")]["qd_score"]
        values = part["qd_score"]
        row = rows.setdefault(str(problem), {})
        if variant == "DMS":
            row["DMS"] = f"{values.mean():,.5g} ± {values.sem():.2g}"
        elif len(default):
            test = games_howell({"a": default.to_numpy(), "b": values.to_numpy()})
            p = next(iter(test.values())).p
            change = 100 * (values.mean() / default.mean() - 1)
            row[str(variant)] = f"{change:+.1f}%" + ("*" if p < 0.05 else "")
    return pd.DataFrame.from_dict(rows, orient="index").fillna("").rename_axis("problem")


def main() -> None:
    """Run or print what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--variants", nargs="*", default=["DMS", *(f"no {p}" for p in PARTS)])
    runner.add_argument("--problems", nargs="*", default=[*DOMAINS, *SUITE])
    runner.add_argument("--seeds", type=int, default=20)
    runner.add_argument("--iterations", type=int, default=10_000, help="on the paper's domains")
    runner.add_argument("--centroids-dir", help="as for gloam paper")
    runner.add_argument("--workers", type=int, default=1, help="processes at once")
    runner.add_argument("--out", type=Path, default=Path("runs/ablation"))
    commands.add_parser("table").add_argument("out", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    from gloam.experiments.statistics import as_markdown

    print(as_markdown(table(pd.read_csv(options.out / "scores.csv")).reset_index()))


if __name__ == "__main__":
    main()
