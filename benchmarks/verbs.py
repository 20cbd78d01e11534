"""Measure the cost of each part of an iteration, compiled separately, on inputs from a search."""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd

from gloam import step
from gloam._tools.programs import partition
from gloam.algorithms import Algorithm
from gloam.domains import Domain
from gloam.emitters import CMAES
from gloam.records import Batch
from gloam.runs.fused_driver import FusedDriver
from gloam_lab.presets import preset_algorithm
from gloam_lab.report import as_markdown
from gloam_lab.speed import BackgroundLoad
from gloam_lab.study import domain_named


class Stopwatch:
    """Compiles parts of one algorithm and records the median milliseconds of a call.

    With several seeds a call does the work of all of them. Inputs whose first axis has that size
    are split between the seeds.
    """

    def __init__(self, algorithm: Algorithm, repeats: int, seeds: int):
        self.arrays, self.static = partition(algorithm.for_programs())
        self.repeats = repeats
        self.seeds = seeds
        self.milliseconds: dict[str, float] = {}

    def __call__(self, name: str, verb: Callable, *inputs: Any, donate: bool = False) -> Any:
        """Time ``verb(algorithm, *inputs)`` and return what it gives.

        All arrays must come as inputs: what a verb only closes over is a constant of its program,
        and the compiler would work it out beforehand.

        Args:
            name: The line of the table.
            verb: The function to compile.
            inputs: Its arguments after the algorithm.
            donate: Let it write into its first input, as the drivers do. Otherwise a verb that
                changes the archive is charged for a copy that no search makes.
        """

        def program(arrays: Any, first: Any, rest: Any) -> Any:
            with jax.default_matmul_precision("float32"):
                return verb(self.static.with_arrays(arrays), first, *rest)

        if self.seeds > 1:
            first, rest = (
                jax.tree.map(lambda x: 0 if x.ndim and len(x) == self.seeds else None, part)
                for part in (inputs[0], list(inputs[1:]))
            )
            program = jax.vmap(program, (None, first, rest))
        first, *rest = inputs
        call = jax.jit(program, donate_argnums=1 if donate else ())
        times, result = [], None
        for _ in range(self.repeats + 1):
            mine = jax.block_until_ready(jax.tree.map(jnp.copy, first))
            start = time.perf_counter()
            result = jax.block_until_ready(call(self.arrays, mine, rest))
            times.append(1000 * (time.perf_counter() - start))
        self.milliseconds[name] = statistics.median(times[1:])  # the first one warms up
        return result


def costs(
    domain: Domain, algorithm: Algorithm, iterations: int, repeats: int, seeds: int
) -> dict[str, float]:
    """Return the milliseconds of each part after ``iterations`` iterations, for all seeds."""
    fused = FusedDriver(domain, algorithm, list(range(seeds)))
    fused.start()
    fused.advance(iterations)
    state = jax.tree.map(jnp.copy, fused.checkpoint())
    if seeds == 1:  # the iteration has no axis of seeds
        state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, state)
    emitter: Any = algorithm.emitter
    while hasattr(emitter, "emitters"):  # a mixture, of which the first has CMA-ES
        emitter = emitter.emitters[0]
    gap = CMAES().gap(domain.x0.size, emitter.batch_size)
    watch = Stopwatch(algorithm, repeats, seeds)

    proposal = watch("ask", step.ask, state)
    evaluation = watch("evaluate", lambda _, x: step.evaluation(domain(x)), proposal.solutions)
    cells = watch("index", lambda a, m: a.archive.index_of(m), evaluation[1])
    valid = jnp.ones(cells.shape, bool)
    batch = Batch(proposal.solutions, *evaluation[:2], cells, valid, {})
    state, added = watch("add", step.add, state, batch, donate=True)
    seen, scored = watch("score", step.score, state, batch)
    often, seldom = "adapt", f"adapt, factorising (1 in {gap})"
    for name, finished in ((often, gap * 1001), (seldom, gap * 1001 - 1)):
        at = dataclasses.replace(state, iteration=jnp.int32(finished))
        watch(name, step.adapt, at, proposal, batch, scored, added)
    watch("train", step.train, state, seen, scored)

    found = dict(watch.milliseconds)
    found["sum of the verbs"] = sum(found.values()) - found[often] - found[seldom]
    found["sum of the verbs"] += ((gap - 1) * found[often] + found[seldom]) / gap
    stretches = []
    for _ in range(repeats):
        start = time.perf_counter()
        fused.advance(20)
        stretches.append(1000 * (time.perf_counter() - start) / 20)
    found["whole step, fused"] = statistics.median(stretches)
    watch("a call that does nothing", lambda _, s: s.iteration + 1, state)
    return found | watch.milliseconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Milliseconds of each verb of one iteration of DMS on LP Sphere, as a Markdown "
        "table. Verbs are compiled one by one and called with the inputs of a search that has run "
        "for a while; each figure is a median. Verbs that are called alone also pay for the call, "
        "which the last line shows; in the fused program nobody does.",
        epilog="Example: verbs.py --measures 10 --repeats 200. Quote figures only from a machine "
        "with nothing else to do.",
    )
    parser.add_argument(
        "--measures",
        type=int,
        nargs="+",
        default=[2, 10, 50],
        metavar="K",
        help="numbers of measures (2 10 50)",
    )
    parser.add_argument("--centroids-dir", type=Path, metavar="DIR", help="folder with lp_{K}d.npy")
    parser.add_argument(
        "--iterations",
        type=int,
        default=100,
        metavar="N",
        help="iterations before the verbs are timed (100)",
    )
    parser.add_argument(
        "--repeats", type=int, default=100, metavar="N", help="calls of each verb (100)"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="seeds that every call works for (1)"
    )
    parser.add_argument("--algorithm", choices=["dms-paper", "dms"], default="dms-paper")
    options = parser.parse_args()
    load = BackgroundLoad()
    columns = {}
    for k in options.measures:
        domain = domain_named(f"{k}d-lp-sphere", options.centroids_dir)
        algorithm = preset_algorithm(options.algorithm, domain)
        counts = options.iterations, options.repeats, options.seeds
        columns[f"{k}D"] = costs(domain, algorithm, *counts)
    table = pd.DataFrame(columns).map("{:.3f}".format).rename_axis("verb").reset_index()
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {options.seeds} seeds, "
        "milliseconds\n"
    )
    print(as_markdown(table))
    print(load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
