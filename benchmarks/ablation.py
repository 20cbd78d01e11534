"""Take each emitter or part out of `gloam.DMS`, or change a number, and compare QD scores.

    python benchmarks/ablation.py run --out runs/ablation --centroids-dir DIR
    python benchmarks/ablation.py run --variants step=1 step=2 --problems 10d-lp-sphere vectors
    python benchmarks/ablation.py run --variants DMS "no aimed, no aimed_moves" "CMA-ES alone"
    python benchmarks/ablation.py run --variants DMS alpha=0.1 "num_emitters=18, batch_size=18"
    python benchmarks/ablation.py table runs/ablation
    python benchmarks/ablation.py curves runs/constants docs/images/constants.png

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
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from gloam_lab.study import DOMAINS

FOREIGN = Path(__file__).parent / "foreign"
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

PARTS = (
    "aimed",
    "aimed_moves",
    "moves",
    "swaps",
    "best_of",
    "differences",
    "estimated units",
    "RestartWhenIdle",
)
"""Parts that a variant ``no PART`` lacks: emitters by their labels, and parts of the others."""
ALONE = "CMA-ES alone"
"""The variant whose only emitter is CMA-ES by improvement."""
CONSTANTS: dict[str, tuple[str, str]] = {
    "exploring": ("gloam.algorithms.dms", "_EXPLORING"),
    "least": ("gloam.algorithms.dms", "_LEAST"),
    "shortest wait": ("gloam.emitters.rules", "_SHORTEST_WAIT"),
    "deviations": ("gloam.discounts.units", "_DEVIATIONS"),
    "step": ("gloam.discounts.units", "_STEP"),
}
"""Constants that a variant ``NAME=VALUE`` changes."""
SETTINGS: dict[str, Callable[[str], Any]] = {
    "alpha": float,
    "batch_size": int,
    "learning_rate": float,
    "num_emitters": int,
    "num_empty_points": int,
}
"""Settings of `gloam.DMS` that a variant ``NAME=VALUE`` changes, besides ``restart factor``."""


def changed(variant: str, build: Callable[..., Any], ceiling: float | None) -> Any:
    """Build a variant of `gloam.DMS`.

    Args:
        variant: ``"DMS"``, `ALONE`, or ``"no PART"`` and ``"NAME=VALUE"`` with commas between them.
        build: Builds `gloam.DMS` with the arguments that change.
        ceiling: Largest objective, for the variant without estimated units.
    """
    from gloam import Algorithm
    from gloam.emitters import AdaptiveMixture, BasicRestart, Recombination, RestartWhenIdle

    class Lines(Recombination):
        @property
        def num_differences(self) -> int:
            return 0

    changes = variant.split(", ")
    options: dict[str, Any] = {}
    for name, value in (change.split("=") for change in changes if "=" in change):
        if name in CONSTANTS:
            module, constant = CONSTANTS[name]
            setattr(importlib.import_module(module), constant, float(value))
        elif name == "restart factor":
            options["restart"] = RestartWhenIdle(float(value))
        else:
            options[name] = SETTINGS[name](value)
    if "no RestartWhenIdle" in changes:
        options["restart"] = BasicRestart()
    if "no estimated units" in changes:
        options |= {"floor": build().archive.f_min or 0.0, "ceiling": ceiling}
    if ALONE in changes:
        options["mixture"] = False
    algorithm = build(**options)
    emitter = algorithm.emitter
    if ALONE not in changes:
        members = dict(zip(emitter.labels, emitter.emitters, strict=True))
        moves = members["moves"]
        start: dict[str, Any] = {"x0": moves.x0, "sigma0": moves.sigma0, "bounds": moves.bounds}
        kind = Lines if "no differences" in changes else Recombination
        best_of = 1 if "no best_of" in changes else moves.best_of
        members["moves"] = kind(**start, batch_size=moves.batch_size, best_of=best_of)
        least = dict(zip(emitter.labels, emitter.least.tolist(), strict=True))
        kept = [label for label in members if f"no {label}" not in changes]
        emitter = AdaptiveMixture(
            [members[label] for label in kept], least=[least[label] for label in kept]
        )
    return Algorithm(emitter, algorithm.archive, algorithm.discount, variant)


def run_domain(
    variant: str, name: str, seeds: int, iterations: int, folder: str | None
) -> list[dict[str, Any]]:
    """Run a variant on a domain of the paper and return a row for each seed."""
    import gloam
    from gloam_lab.presets import preset_algorithm
    from gloam_lab.study import domain_named

    domain = domain_named(name, folder)
    algorithm = changed(variant, partial(preset_algorithm, "dms", domain), 1.0)
    log_every = max(1, iterations // 10)
    result = gloam.run(
        domain, algorithm, iterations, seeds=range(seeds), log_every=log_every, progress=False
    )
    return rows_of(result.metrics)


def rows_of(metrics: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows from which scores with a common reference can be computed."""
    total = metrics["num_elites"] * metrics["mean_objective"]
    columns = ["seed", "iteration", "num_elites", "f_min"]
    return metrics[columns].assign(sum=total).to_dict("records")


def run_foreign(variant: str, name: str, seeds: int) -> list[dict[str, Any]]:
    """Run a variant on a problem of the suite and return a row for each seed."""
    sys.path.insert(0, str(FOREIGN))
    import gloam
    from contenders import default
    from problems import PROBLEMS
    from run import REPEATS

    problem = PROBLEMS[name]
    setup = problem.build()
    algorithm = changed(variant, partial(default, setup), setup.f_max)
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
        return rows_of(result.metrics)
    again = {s: one.objectives for s, one in result.reevaluated(REPEATS).elites_by_seed.items()}
    return [
        {
            "seed": seed,
            "iteration": iterations,
            "num_elites": len(found),
            "f_min": setup.archive.f_min if setup.archive.f_min is not None else found.min(),
            "sum": found.sum(dtype=float),
        }
        for seed, found in again.items()
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
            print(*tasks[task], *last[["num_elites", "sum", "seconds"]].mean().round(2), flush=True)


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Add QD scores, with one reference for all runs of a problem."""
    reference = rows.groupby("problem")["f_min"].transform("min")
    return rows.assign(qd_score=rows["sum"] - rows["num_elites"] * reference)


def draw_curves(rows: pd.DataFrame, image: Path) -> None:
    """Draw the QD score over iterations: a row for each problem, a column for each constant."""
    from gloam.plots import save, style

    scores = scored(rows)
    problems = list(dict.fromkeys(scores["problem"]))
    names = {variant.split("=")[0] for variant in scores["variant"]}
    constants = {name: place for name, place in CONSTANTS.items() if name in names}
    figure = style.figure(2.4 * len(constants), 2.3 * len(problems))
    panels = figure.subplots(len(problems), len(constants), squeeze=False, sharey="row")
    for row, problem in enumerate(problems):
        line = panels[row]
        for axes, (name, (module, constant)) in zip(line, constants.items(), strict=True):
            plain = getattr(importlib.import_module(module), constant)
            found = {plain: "DMS"}
            for variant in scores["variant"].unique():
                if variant.startswith(f"{name}="):
                    found[float(variant.split("=")[1])] = variant
            for color, value in zip(("#0072b2", style.INK, "#e69f00"), sorted(found), strict=True):
                own = scores[(scores["problem"] == problem) & (scores["variant"] == found[value])]
                groups = own.groupby("iteration")["qd_score"]
                mean, error = groups.mean(), groups.sem()
                label = f"{value:g}" + (" (default)" if value == plain else "")
                axes.plot(mean.index, mean, color=color, linewidth=1.5, label=label)
                axes.fill_between(mean.index, mean - error, mean + error, color=color, alpha=0.2)
            style.dress(axes, grid=True)
            axes.legend(frameon=False, fontsize=style.SMALL, loc="lower right")
            if row == 0:
                style.heading(axes, constant)
            if row == len(problems) - 1:
                axes.set_xlabel("iteration")
        line[0].set_ylabel(f"QD score, {problem}")
    print(save(figure, image))


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the change of the final QD score against DMS in percent.

    A star marks changes with p < 0.05 in Welch's test.
    """
    from gloam.runs.comparison import games_howell

    scores = scored(scores)
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
    runner.add_argument(
        "--variants", nargs="*", default=["DMS", ALONE, *(f"no {p}" for p in PARTS)]
    )
    runner.add_argument("--problems", nargs="*", default=[*DOMAINS, *SUITE])
    runner.add_argument("--seeds", type=int, default=20)
    runner.add_argument("--iterations", type=int, default=10_000, help="on the paper's domains")
    runner.add_argument("--centroids-dir", help="as for gloam paper")
    runner.add_argument("--workers", type=int, default=1, help="processes at once")
    runner.add_argument("--out", type=Path, default=Path("runs/ablation"))
    commands.add_parser("table").add_argument("out", type=Path)
    drawer = commands.add_parser("curves")
    drawer.add_argument("out", type=Path)
    drawer.add_argument("image", type=Path)
    options = parser.parse_args()
    if options.command == "curves":
        draw_curves(pd.read_csv(options.out / "scores.csv"), options.image)
        return
    if options.command == "run":
        run_all(options)
    from gloam.runs.comparison import as_markdown

    print(as_markdown(table(pd.read_csv(options.out / "scores.csv")).reset_index()))


if __name__ == "__main__":
    main()
