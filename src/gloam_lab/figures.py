"""Figures of the laboratory: of a study, and of a comparison of speed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gloam.discounts import DiscountModel
from gloam.formats import RunFolder
from gloam.plots import curves, discount_panels, style
from gloam.plots.discount import algorithm_of
from gloam.plots.heatmaps import draw_heatmap
from gloam.plots.plane import CellValues, Plane, cell_values

Folders = Mapping[str, Mapping[str, list[RunFolder]]]
"""Run folders by domain, then by algorithm; several if seeds ran in groups."""


def study_figures(folders: Folders, out: Path, *, pdf: bool = False) -> list[Path]:
    """Draw a study.

    For each domain, the curves of its algorithms with their standard errors. For domains with two
    measures, also a heatmap of the first seed of each algorithm, and the discount function over
    iterations for each run with a discount model.

    Args:
        folders: The run folders of the study.
        out: Folder for the figures.
        pdf: Write PDF files, too.

    Returns:
        The files written.
    """
    figures: dict[str, Figure] = {}
    for domain, algorithms in folders.items():
        tables = {
            label: pd.concat([part.read_metrics() for part in parts], ignore_index=True)
            for label, parts in algorithms.items()
        }
        tables = {label: table for label, table in tables.items() if len(table)}
        if not tables:
            continue
        figures[f"curves-{_stem(domain)}"] = curves(tables, title=domain)
        maps: dict[str, CellValues] = {}
        for label, (first, *_) in algorithms.items():
            algorithm = algorithm_of(first)
            if algorithm.archive.measure_dim != 2:
                continue
            if iterations := first.snapshot_iterations:
                objectives = first.read_snapshot(iterations[-1])["objectives"]
                maps[label] = cell_values((algorithm.archive, objectives))
            if isinstance(algorithm.discount, DiscountModel):
                stem = f"discount-{_stem(domain)}-{_stem(label)}"
                figures[stem] = discount_panels(first, algorithm=algorithm)
        if maps:
            figures[f"heatmaps-{_stem(domain)}"] = _heatmaps(maps, domain)
    return style.save_all(figures, out, pdf=pdf)


def speed_figure(table: pd.DataFrame) -> Figure:
    """Draw the time of an iteration as bars, by contender and problem, on a logarithmic scale.

    Args:
        table: With columns ``algorithm``, ``measure_dim``, ``contender``, ``median_ms``, ``min_ms``
            and ``max_ms``, such as the results of ``gloam bench``.
    """
    algorithms = list(dict.fromkeys(table["algorithm"]))
    colors = style.line_colors(dict.fromkeys(table["contender"]))
    figure = style.figure(4.2 * len(algorithms), 3.8)
    panels = figure.subplots(1, len(algorithms), squeeze=False)[0]
    for axes, algorithm in zip(panels, algorithms, strict=True):
        own = table[table["algorithm"] == algorithm]
        problems = list(dict.fromkeys(own["measure_dim"]))
        present = [name for name in colors if name in set(own["contender"])]
        width = 0.8 / len(present)
        for number, name in enumerate(present):
            rows = pd.DataFrame(own[own["contender"] == name]).set_index("measure_dim")
            offset = width * (number - (len(present) - 1) / 2)
            places = np.arange(len(problems)) + offset
            _draw_bars(axes, places, rows.loc[problems], 0.92 * width, name, colors[name])
        axes.set_yscale("log")
        axes.set_xticks(range(len(problems)), [f"{k} measures" for k in problems])
        axes.set_ylabel("milliseconds per iteration")
        style.dress(axes, grid=True)
        style.heading(axes, algorithm)
        axes.legend(fontsize=style.SMALL, frameon=False)
    return figure


def _stem(name: str) -> str:
    """Return a name as part of the name of a file."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


def _heatmaps(maps: Mapping[str, CellValues], title: str) -> Figure:
    """Draw archives side by side, on one scale of colours from f_min to the best."""
    every = np.concatenate([shown.values for shown in maps.values()])
    best, lowest = every.max(), every.min(initial=0.0, where=np.isfinite(every))
    figure = style.figure(2.5 * len(maps) + 0.6, 3.0)
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (label, shown) in zip(panels, maps.items(), strict=True):
        limits = (shown.archive.f_min_from(lowest), best)
        drawn = draw_heatmap(axes, shown, Plane(shown.archive), limits)
        coverage = np.isfinite(shown.values).mean()
        axes.set_title(f"{label}\n{coverage:.1%} covered", fontsize=style.LABEL, color=style.INK)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
        if axes is panels[-1]:
            style.side_bar(drawn, list(panels), "objective")
    style.figure_heading(figure, title)
    return figure


def _draw_bars(
    axes: Axes, places: np.ndarray, rows: pd.DataFrame, width: float, name: str, color: str
) -> None:
    """Draw the medians of one contender, with lines from the lowest to the highest."""
    median = rows["median_ms"]
    spread = [median - rows["min_ms"], rows["max_ms"] - median]
    axes.bar(places, median, width, yerr=spread, label=name, color=color, ecolor=style.QUIET)
    for place, value in zip(places, median, strict=True):
        looks = {"ha": "center", "fontsize": style.SMALL - 2, "color": "black"}
        style.annotate(axes, f"{value:.3g}", (place, value), (0, 4), **looks)
