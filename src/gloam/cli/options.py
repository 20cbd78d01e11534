"""Options that several commands share, and the summaries that they print at the end."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gloam
from gloam._tools import checks
from gloam._tools.progress import print_line

if TYPE_CHECKING:
    from gloam.datasets import Matches
    from gloam.emitters import RestartRule
    from gloam.runs import Result

_RESTARTS = {
    "idle": "RestartWhenIdle",
    "basic": "BasicRestart",
    "no-improvement": "RestartWithoutImprovement",
}


@dataclasses.dataclass(frozen=True)
class SavingOptions:
    """How often metrics and checkpoints are written to the run folder."""

    log_every: int = 50
    """Number of iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Number of seconds between checkpoints; longer if these would take over 3% of the time."""
    checkpoint_every: int | None = None
    """Number of iterations between two checkpoints, in addition to --checkpoint-seconds."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep. If the newest is damaged, the one before it is used."""


@dataclasses.dataclass(frozen=True)
class FollowOptions:
    """Early stopping, and output while the search runs."""

    stop_coverage: float | None = None
    """Stop when this share of the cells (0 to 1) is filled, in every seed."""
    stop_score: float | None = None
    """Stop when the QD score has reached this value, in every seed."""
    stop_plateau: int | None = None
    """Stop when the QD score has not grown for this number of iterations, in any seed."""
    csv: Path | None = None
    """CSV file to which the rows of metrics are written as well."""
    quiet: bool = False
    """Show no progress bars."""

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of `gloam.run`, `gloam.optimize` and `gloam.resume`."""
        callbacks = []
        if self.stop_coverage is not None:
            callbacks.append(gloam.callbacks.StopAt("coverage", self.stop_coverage))
        if self.stop_score is not None:
            callbacks.append(gloam.callbacks.StopAt("qd_score", self.stop_score))
        if self.stop_plateau is not None:
            callbacks.append(gloam.callbacks.StopOnPlateau("qd_score", self.stop_plateau))
        if self.csv is not None:
            callbacks.append(gloam.callbacks.CsvLogger(self.csv))
        return {"callbacks": callbacks, "progress": not self.quiet}


def restart_rule(text: str) -> "RestartRule":
    """Return the restart rule that the option --restart names."""
    if text.isdigit():
        return gloam.emitters.RestartEvery(int(text))
    expected = "idle, basic, no-improvement or a number of iterations"
    checks.expect(text in _RESTARTS, "restart", expected, repr(text))
    return getattr(gloam.emitters, _RESTARTS[text])()


def print_metrics(result: "Result") -> None:
    """Print the last metrics of every seed, and the run folder."""
    from gloam.archives.qd_score import tables_with_one_reference

    metrics = result.metrics
    last: Any = metrics[metrics["iteration"] == metrics["iteration"].max()]
    (last,), f_min = tables_with_one_reference([last])
    print_line(f"{'seed':>6} {'QD score':>12} {'coverage':>9} {'best':>9} {'restarts':>9}")
    for row in last.itertuples():
        print_line(
            f"{row.seed:>6} {row.qd_score:>12,.2f} {row.coverage:>9.2%} "
            f"{row.best_objective:>9.4f} {row.restarts:>9}"
        )
    if f_min != 0:
        print_line(f"QD scores are counted from {f_min:g}")
    if result.stopped:
        print_line(f"Stopped early: {result.stopped}")
    print_line(f"Run folder: {result.run_dir}")


def show_matches(matches: "Matches", run_dir: Path, *, domain: Any = None, title: str = "") -> None:
    """Print how well the elites match the items, also by label, and write the gallery."""
    from gloam.gallery import gallery_run  # matplotlib takes a second to import

    print_matches(matches)
    show_gallery(gallery_run(run_dir, matches=matches, domain=domain, title=title), run_dir)


def show_gallery(paths: "list[Path]", folder: Path) -> None:
    """Print the files of a gallery, and how to look at it."""
    for path in paths:
        print_line(path)
    print_line(f"To look at the pairs, open {folder / 'gallery.html'} in a browser.")


def print_matches(matches: "Matches") -> None:
    """Print how well the elites match the items, also by label."""
    from gloam.archives.qd_score import reference_note

    elites, data = matches.elites, matches.dataset
    print_line(
        f"{len(elites):,} of {len(data):,} items have an elite ({matches.coverage():.1%}), "
        f"QD score {elites.qd_score:,.2f}{reference_note(elites.f_min)}, "
        f"best {elites.best_objective:.4f}"
    )
    if len(elites):
        missed = int((~matches.reached).sum())
        print_line(
            f"Explained variance of all items: {matches.explained:.1%}; not reached: {missed:,} "
            "(no solution found is nearer to them than the mean of all items is)"
        )
    if data.labels is not None and 1 < len(set(data.labels)) <= 30:
        rows: Any = matches.coverage_by_label().itertuples()
        print_line(f"{'label':>12} {'filled':>6}    {'items':<6} {'coverage':>8} {'explained':>9}")
        for row in rows:
            print_line(
                f"{row.label:>12} {row.filled:>6} of {row.items:<6} {row.coverage:>8.1%} "
                f"{row.explained:>9.1%}"
            )
