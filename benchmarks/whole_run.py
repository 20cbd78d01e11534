"""Measure the wallclock of whole searches on LP (Sphere), all seeds at once."""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import jax

import gloam
from gloam._tools import compiler
from gloam_lab import preset_algorithm
from gloam_lab.contenders import Problem


def main() -> int:
    """Run one search and print its times."""
    parser = argparse.ArgumentParser(
        description="Seconds of one search from its construction to its result, and from the start "
        "of the run to the last iteration. Both include compilation and exclude loading JAX. With "
        "JAX_ENABLE_COMPILATION_CACHE=false, programs of earlier runs are not used.",
        epilog="Example: whole_run.py --measures 10 --centroids-dir DIR --seeds 20",
    )
    parser.add_argument(
        "--algorithm",
        choices=("dms-paper", "dms", "cma-mae", "map-elites-line"),
        default="dms-paper",
        help="the paper's form of DMS (dms-paper), gloam's default (dms), or another one",
    )
    parser.add_argument(
        "--measured",
        action="store_true",
        help="on a GPU, let XLA choose the algorithms of all products by measurements",
    )
    parser.add_argument("--measures", type=int, default=2, metavar="K", help="measures (2)")
    parser.add_argument("--centroids-dir", type=Path, metavar="DIR", help="folder with lp_{K}d.npy")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="number of seeds (20)")
    parser.add_argument(
        "--iterations", type=int, default=10_000, metavar="N", help="iterations (10000)"
    )
    parser.add_argument(
        "--log-every",
        type=int,
        default=1000,
        metavar="N",
        help="iterations between two rows of metrics (1000)",
    )
    options = parser.parse_args()
    device = jax.devices()[0].device_kind
    if options.measured:
        compiler._NO_MEASUREMENTS = {}

    start = time.perf_counter()
    problem = Problem("dms-paper", options.measures, options.centroids_dir)
    result = gloam.run(
        problem.domain,
        preset_algorithm(options.algorithm, problem.domain),
        seeds=options.seeds,
        iterations=options.iterations,
        log_every=options.log_every,
        progress=False,
    )
    spent = time.perf_counter() - start
    rows = result.metrics
    last = rows[rows["iteration"] == options.iterations]
    searched = last["seconds"].iloc[0]
    first = rows[rows["iteration"] == rows["iteration"].min()].iloc[0]
    pace = (searched - first["seconds"]) / max(1, options.iterations - first["iteration"])
    score, error = last["qd_score"].mean(), last["qd_score"].sem() if len(last) > 1 else 0.0
    found = [result.elites_by_seed[seed].objectives.tobytes() for seed in sorted(last["seed"])]
    print(
        f"{device}, {options.measures}D, {options.seeds} seeds x {options.iterations}: "
        f"{spent:.1f} s in total, {searched:.1f} s to the last iteration, {1000 * pace:.3f} "
        f"ms/iteration, QD score {score:.1f} +- {error:.1f}, "
        f"objectives {hashlib.sha256(b''.join(found)).hexdigest()[:10]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
