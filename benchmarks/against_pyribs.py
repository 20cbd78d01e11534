"""gloam against pyribs' own DMS on LP Sphere, in one process, both warm, taking turns."""

import argparse
import csv
import dataclasses
import itertools
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gloam
from contenders import (
    Contender,
    GloamAskTell,
    GloamFused,
    Line,
    Neighbours,
    check_and_warm_up,
    differences,
    table,
    take_turns,
)
from problems import Problem, add_problem_arguments, checked_problems, whole

try:
    import torch
    from ribs.archives import CVTArchive, DiscountArchive, GridArchive
    from ribs.discount_models import MLP, DiscountModelManager
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    MISSING = None
except ImportError as error:
    MISSING = str(error)  # --help works all the same


class Pyribs(Contender):
    """DMS of pyribs, with its own CMA-ES."""

    name = "pyribs"

    def __init__(self, problem: Problem, seed: int):
        k, sol, archive = problem.measures, problem.solution, problem.archive
        lower, upper = np.asarray(archive.lower, float), np.asarray(archive.upper, float)
        box = list(zip(lower, upper, strict=True))
        if isinstance(archive, gloam.GridArchive):
            self.elites = GridArchive(solution_dim=sol, dims=archive.shape, ranges=box)
        else:
            assert isinstance(archive, gloam.CVTArchive)
            points = np.asarray(archive.centroids, float)
            self.elites = CVTArchive(solution_dim=sol, centroids=points, ranges=box)
        torch.manual_seed(seed)
        sizes = [k, *problem.hidden, 1]
        network = MLP(list(itertools.pairwise(sizes)), torch.nn.ReLU)
        optimizer = torch.optim.Adam(network.parameters(), lr=problem.learning_rate)
        model = DiscountModelManager(
            network, optimizer, torch.device("cpu"), train_epochs=problem.epochs,
            train_cutoff_loss=problem.cutoff, train_batch_size=problem.train_batch_size,
            normalize_measures="negative_one_one", measures_low=lower, measures_high=upper,
        )  # fmt: skip
        self.archive = DiscountArchive(
            solution_dim=sol, measure_dim=k, learning_rate=problem.alpha, threshold_min=0.0,
            result_archive=self.elites, discount_model_manager=model, seed=seed,
            init_train_points=problem.init_points, empty_points=problem.empty_points,
        )  # fmt: skip
        # pyribs 0.12's DiscountArchive cannot give the elite that a restart starts from.
        self.archive.sample_elites = self.elites.sample_elites
        self.archive.init_discount_model()
        seeds = np.random.SeedSequence(seed).generate_state(problem.emitters)
        emitters = [
            EvolutionStrategyEmitter(
                self.archive, x0=np.zeros(sol), sigma0=problem.sigma0, ranker="imp",
                selection_rule="mu", restart_rule=problem.restart_every or "basic",
                batch_size=problem.batch_size, seed=int(own),
            )
            for own in seeds
        ]  # fmt: skip
        self.scheduler = Scheduler(self.archive, emitters, result_archive=self.elites)
        self.problem = problem
        self.cells = int(self.elites.cells)
        self._info: dict[str, Any] = {}

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            solutions = self.scheduler.ask()
            self.scheduler.tell(*self.problem.evaluate(solutions))
            self._info = self.archive.train_discount_model()
            self.evaluations += len(solutions)

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return float(self.elites.stats.qd_score)

    @property
    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self._info["epochs"]


def measure(problem: Problem, options: argparse.Namespace) -> list[Line]:
    """Warm every contender up over the same iterations, then time them in turns."""
    kinds = {
        Pyribs: options.iterations,
        GloamFused: options.gloam_iterations,
        GloamAskTell: options.gloam_iterations,
    }
    contenders = [kind(problem, options.seed) for kind in kinds]
    lines = [check_and_warm_up(problem, one, options.warm_up) for one in contenders]
    take_turns(contenders, lines, list(kinds.values()), options.repeats)
    return lines


def same_domain(problem: Problem) -> bool:
    """Whether the domain in NumPy and in JAX are one function."""
    solutions = 4 * np.random.default_rng(0).standard_normal((500, problem.solution))
    pairs = zip(problem.evaluate(solutions), problem.domain(jnp.asarray(solutions)), strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs)


def surroundings() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "gloam": gloam.__version__, "ribs": version("ribs"), "jax": jax.__version__,
        "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version(),
        "jax_device": jax.devices()[0].device_kind, "torch_threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
    }  # fmt: skip


def write_csv(path: Path, lines: list[Line], around: dict[str, Any]) -> None:
    rows = []
    for line in lines:
        row = dataclasses.asdict(line) | {"median_ms": line.median_ms} | around
        rows.append(row | {"stretches_ms": " ".join(f"{ms:.4f}" for ms in line.stretches_ms)})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time gloam's DMS against pyribs' on LP Sphere with the paper's settings: "
        "15 emitters of 36 solutions, 10,000 cells, 100 empty points, an MLP of 128 x 128. All "
        "run in this process on the same cells, each in its own precision (pyribs float64, gloam "
        "float32). First they take the same number of iterations, "
        "which warms them up and shows that they do the same work; then they are timed in turns, "
        "so that a slow spell of the machine falls on all of them.",
        epilog="A first look: against_pyribs.py --measures 2 --warm-up 50 --repeats 2. Figures to "
        "quote: against_pyribs.py --measures 2 10 50 --centroids FOLDER --csv FILE, on a machine "
        "with nothing else to do. A busy one was seen to slow pyribs down several times over, and "
        "more with two threads than with one, so its ratios flatter gloam. PyTorch keeps its "
        "default number of threads; run again with OMP_NUM_THREADS=1 in front, which gives PyTorch "
        "and NumPy one, and quote what is better for pyribs. "
        "Exit status: 0; 1 when the contenders did not do the same work; 2 for a wrong argument "
        "or a missing peer.",
    )  # fmt: skip
    add_problem_arguments(parser, [2, 10])

    def count(name: str, default: int, text: str, minimum: int = 1) -> None:
        parser.add_argument(
            name, type=whole(minimum), default=default, metavar="N", help=f"{text} ({default})"
        )

    count("--repeats", 5, "timed stretches of each contender")
    count("--iterations", 50, "iterations in a stretch of pyribs")
    count("--gloam-iterations", 200, "iterations in a stretch of gloam, which are shorter")
    count("--warm-up", 200, "iterations of everyone before the first stretch, after which QD "
          "scores are compared")  # fmt: skip
    count("--seed", 0, "seed of everyone", minimum=0)
    parser.add_argument(
        "--tolerance", type=float, default=0.15, metavar="SHARE",
        help="how far QD scores and training epochs may be from those of pyribs (0.15)",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="also write all figures and stretches to a file"
    )
    options = parser.parse_args()
    if options.csv is not None and not options.csv.parent.is_dir():
        parser.error(f"--csv: expected a file in an existing folder, got '{options.csv}'")
    return options


def main() -> int:
    options = arguments()
    if MISSING is not None:
        print(f"A peer is missing ({MISSING}). Run: pip install 'gloam[bench]'", file=sys.stderr)
        return 2
    problems = checked_problems(options)
    for problem in problems:
        kind = type(problem.archive).__name__
        print(f"{problem.domain.name}: {kind}, {problem.centroids_file or 'cells by gloam'}")
    around = surroundings()
    print(", ".join(f"{name} {value}" for name, value in around.items()), end="\n\n", flush=True)

    lines, found, neighbours = [], [], Neighbours()
    for problem in problems:
        if not same_domain(problem):
            found.append(f"{problem.measures} measures: the domain differs in NumPy and in JAX")
        new = measure(problem, options)
        lines += new
        found += differences(new, options.tolerance)
    print(table(lines), end="\n\n")
    if options.csv is not None:
        write_csv(options.csv, lines, around | {"others_cpu_share": neighbours.share})
    print("\n".join(["Not the same work:", *found]) if found else "All did the same work.")
    print(neighbours)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
