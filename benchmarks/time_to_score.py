"""Time to the paper's final QD score on 10D LP (Sphere): gloam with gradients beside pyribs' DMS.

gloam runs until it has the score. pyribs' DMS needs the paper's 10,000 iterations for it, of which
only some are timed, between the stretches of gloam, and extrapolated.
"""

import argparse
import sys
import time
from pathlib import Path

import gloam
from gloam.runs.fused_driver import FusedDriver
from gloam_lab.contenders import PEERS, Problem
from gloam_lab.speed import BackgroundLoad

SCORE = 6410
"""QD score of DMS after 10,000 iterations in the paper (table 1, 20 seeds)."""
PAPER_ITERATIONS = 10_000


def main() -> int:
    """Run both in turns, for several seeds, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--centroids-dir", type=Path, help="folder with lp_10d.npy")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, one after another (3)")
    parser.add_argument("--timed", type=int, default=60, help="timed iterations of pyribs (60)")
    options = parser.parse_args()
    problem = Problem("dms-paper", 10, options.centroids_dir)
    domain, load = problem.domain, BackgroundLoad()
    algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5, gradients=True)
    theirs = next(peer for peer in PEERS["dms-paper"] if peer.name == "pyribs")(problem, 0)
    theirs.advance(10)
    for seed in range(options.seeds):
        start = time.perf_counter()
        driver = FusedDriver(domain, algorithm, [seed])
        driver.start()
        driver.advance(1)  # compiles
        compiling = time.perf_counter() - start
        searched, score = 0.0, 0.0
        while score < SCORE:
            start = time.perf_counter()
            driver.advance(10)
            score = driver.metrics()[-1][0]["qd_score"]
            searched += time.perf_counter() - start
        start = time.perf_counter()
        theirs.advance(options.timed)
        pace = (time.perf_counter() - start) / options.timed
        print(
            f"seed {seed}: gloam {score:.0f} after {driver.iteration} iterations, {searched:.1f} s "
            f"(and {compiling:.1f} s to compile); pyribs {1e3 * pace:.0f} ms an iteration, "
            f"{PAPER_ITERATIONS * pace:.0f} s for {PAPER_ITERATIONS:,}; ratio "
            f"{PAPER_ITERATIONS * pace / searched:.0f}, with compilation "
            f"{PAPER_ITERATIONS * pace / (searched + compiling):.0f}",
            flush=True,
        )
    print(load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
