"""The table that commands print at the end of a run."""

from typing import Any

from gloam.drivers import Result


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
