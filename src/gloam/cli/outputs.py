"""Checks before a command writes: a file that gloam did not write is never replaced.

The table that commands print at the end of a run.

The table that commands print about the matches of a run with its dataset.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gloam import checks
from gloam.datasets import Matches
from gloam.runs import Result

_OF_BENCH = ("bench.md", "bench.csv", "bench.png")
_BENCH_HEADER = b"algorithm,measure_dim,contender,"
_FIX = "Choose another folder by --out, or move the file away."


def check_bench(path: Path) -> None:
    """Refuse to replace files in a folder unless they are of an earlier `gloam bench`."""
    table = path / "bench.csv"
    if table.is_file():
        with open(table, "rb") as file:
            if file.read(len(_BENCH_HEADER)) == _BENCH_HEADER:
                return
    _check_free(path, _OF_BENCH)


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        checks.expect(False, "file", "a new name", f"'{path}', which exists")


def _check_free(path: Path, names: tuple[str, ...]) -> None:
    found = next((path / name for name in names if (path / name).exists()), None)
    expected = "a folder without files of other programs"
    checks.expect(found is None, "out", expected, f"'{found}'", _FIX)


def print_metrics(result: Result) -> None:
    """Print the last metrics of every seed, and the run folder."""
    metrics = result.metrics
    last: Any = metrics[metrics["iteration"] == metrics["iteration"].max()]
    print(f"{'seed':>6} {'QD score':>12} {'coverage':>9} {'best':>9} {'restarts':>9}")
    for row in last.itertuples():
        print(
            f"{row.seed:>6} {row.qd_score:>12,.2f} {row.coverage:>9.2%} "
            f"{row.best_objective:>9.4f} {row.restarts:>9}"
        )
    if result.stopped:
        print(f"Stopped early: {result.stopped}")
    print(f"Run folder: {result.run_dir}")


def print_matches(matches: Matches) -> None:
    """Print how many items have an elite and how close the elites are, also by label."""
    elites, data = matches.elites, matches.dataset
    print(
        f"{len(elites):,} of {len(data):,} items have an elite ({matches.coverage():.1%}), "
        f"QD score {elites.qd_score:,.2f}, best {elites.best_objective:.4f}"
    )
    if len(elites):
        middle = float(np.median(matches.distances))
        print(f"Median distance between elite and item: {middle:.3g}")
    if data.labels is not None and 1 < len(set(data.labels)) <= 30:
        rows: Any = matches.coverage_by_label().itertuples()
        for row in rows:
            print(f"{row.label:>12} {row.filled:>6} of {row.items:<6} {row.coverage:>7.1%}")
