"""Figures of a study: curves by domain, heatmaps by algorithm, the discount over time."""

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
    for stem, figure in figures.items():
        path = style.save(figure, out / f"{stem}.png", pdf=pdf)
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
