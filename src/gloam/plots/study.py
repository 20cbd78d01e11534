"""Figures of a study: curves by domain, heatmaps by algorithm, the discount over time.

Speed beside the peers: milliseconds of an iteration as bars, one panel an algorithm.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.formats import RunFolder
from gloam.plots import style
from gloam.plots.curves import curves
from gloam.plots.discount import discount_panels
from gloam.plots.heatmap import draw_heatmap
from gloam.plots.style import QUIET, SMALL, dress, figure, heading, line_colors

Folders = Mapping[str, Mapping[str, list[RunFolder]]]
"""Run folders by domain, then by algorithm; several where seeds ran in groups."""


def study_figures(folders: Folders, out: Path, *, pdf: bool = False) -> list[Path]:
    """Draw a study.

    For every domain the curves of its algorithms (QD score, coverage, loss, unique cells per batch,
    with the standard error); for domains with two measures a heatmap of each algorithm's first
    seed; and for every run of a discount model on two measures the discount function over
    iterations with its training points.

    Args:
        folders: What to draw.
        out: Folder for the figures.
        pdf: Write PDF files, too.

    Returns:
        The files written.
    """
    figures: dict[str, Figure] = {}
    for domain, algorithms in folders.items():
        tables = {label: _metrics(parts) for label, parts in algorithms.items()}
        tables = {label: table for label, table in tables.items() if len(table)}
        if not tables:
            continue
        name = "".join(c if c.isalnum() else "-" for c in domain.lower()).strip("-")
        figures[f"curves-{name}"] = curves(tables, title=domain)
        maps = _last_snapshots(algorithms)
        if maps:
            figures[f"heatmaps-{name}"] = _heatmaps(maps, domain)
        for label, parts in algorithms.items():
            algorithm = _algorithm(parts[0])
            if _two_measures(algorithm) and isinstance(algorithm.discount, DiscountModel):
                stem = "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-")
                figures[f"discount-{name}-{stem}"] = discount_panels(parts[0])
    paths = []
    for stem, drawn in figures.items():
        path = style.save(drawn, out / f"{stem}.png", pdf=pdf)
        paths += [path, path.with_suffix(".pdf")] if pdf else [path]
    return paths


def _metrics(parts: list[RunFolder]) -> pd.DataFrame:
    return pd.concat([part.read_metrics() for part in parts], ignore_index=True)


def _algorithm(folder: RunFolder) -> Algorithm:
    return folder.read_part("algorithm")


def _two_measures(algorithm: Algorithm) -> bool:
    return algorithm.archive.measure_dim == 2


def _last_snapshots(
    algorithms: Mapping[str, list[RunFolder]],
) -> dict[str, tuple[Algorithm, np.ndarray]]:
    """The objectives of each algorithm's first seed at its last snapshot, for two measures."""
    found = {}
    for label, parts in algorithms.items():
        algorithm, snapshots = _algorithm(parts[0]), parts[0].read_snapshots()
        if snapshots and _two_measures(algorithm):
            found[label] = (algorithm, snapshots[max(snapshots)]["objectives"])
    return found


def _heatmaps(maps: Mapping[str, tuple[Algorithm, np.ndarray]], title: str) -> Figure:
    """One archive beside the other, in one scale of colours from f_min to the best."""
    best = max(float(objectives.max()) for _, objectives in maps.values())
    figure = style.figure(2.5 * len(maps) + 0.6, 3.0)
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (label, (algorithm, objectives)) in zip(panels, maps.items(), strict=True):
        limits = (algorithm.archive.f_min, best)
        drawn = draw_heatmap(axes, (algorithm.archive, objectives), limits=limits)
        coverage = np.isfinite(objectives).mean()
        axes.set_title(f"{label}\n{coverage:.1%} covered", fontsize=style.LABEL, color=style.INK)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
        if axes is panels[-1]:
            bar = figure.colorbar(drawn, ax=list(panels), shrink=0.8, pad=0.02)
            bar.set_label("objective", color=style.INK, fontsize=style.LABEL)
            style.dress(bar.ax)
    figure.suptitle(
        title, x=0.015, ha="left", fontsize=style.TITLE, fontweight="bold", color=style.INK
    )
    return figure


def speed(table: pd.DataFrame) -> Figure:
    """Bars of every contender, grouped by problem, on a logarithmic scale.

    Args:
        table: With columns ``algorithm``, ``measure_dim``, ``contender``, ``median_ms``, ``min_ms``
            and ``max_ms``; what `gloam.peers.Comparison.frame` gives.
    """
    algorithms = list(dict.fromkeys(table["algorithm"]))
    contenders = list(dict.fromkeys(table["contender"]))
    colors = line_colors(contenders)
    made = figure(4.2 * len(algorithms), 3.8)
    panels = made.subplots(1, len(algorithms), squeeze=False)[0]
    for axes, algorithm in zip(panels, algorithms, strict=True):
        mine = table[table["algorithm"] == algorithm]
        problems = list(dict.fromkeys(mine["measure_dim"]))
        present = [name for name in contenders if name in set(mine["contender"])]
        width = 0.8 / len(present)
        for number, name in enumerate(present):
            rows = (
                pd.DataFrame(mine[mine["contender"] == name]).set_index("measure_dim").loc[problems]
            )
            places = [i + width * (number - (len(present) - 1) / 2) for i in range(len(problems))]
            spread = [rows["median_ms"] - rows["min_ms"], rows["max_ms"] - rows["median_ms"]]
            axes.bar(
                places,
                rows["median_ms"],
                width * 0.92,
                yerr=spread,
                label=name,
                color=colors[name],
                ecolor=QUIET,
            )
            for place, value in zip(places, rows["median_ms"], strict=True):
                axes.annotate(
                    f"{value:.3g}",
                    (place, value),
                    (0, 4),
                    fontsize=SMALL - 2,
                    textcoords="offset points",
                    ha="center",
                )
        axes.set_yscale("log")
        axes.set_xticks(range(len(problems)), [f"{k} measures" for k in problems])
        axes.set_ylabel("milliseconds per iteration")
        dress(axes, grid=True)
        heading(axes, algorithm)
        axes.legend(fontsize=SMALL, frameon=False)
    return made
