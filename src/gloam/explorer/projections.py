"""Two-dimensional maps of high-dimensional archives: PCA, and t-SNE or UMAP where installed."""

import importlib.util
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from gloam.explorer.opened_run import OpenedRun

# Cells that t-SNE and UMAP lay out; they take seconds for these, and hours for a million.
_SAMPLE = 2000
_FEWEST = 5
_PACKAGES = {"umap": "umap", "t-sne": "sklearn"}
_TITLES = {"umap": "UMAP", "t-sne": "t-SNE"}
_slow = threading.Lock()


def projections_for(run: "OpenedRun") -> list[dict[str, Any]]:
    """Projections that can be chosen for a run, the first being the default."""
    if run.archive.measure_dim <= 2:
        return [{"name": "measures", "title": "measures", "cells": None}]
    found = [{"name": "pca", "title": "PCA", "cells": None}]
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(package) is not None:
            found.append({"name": name, "title": _TITLES[name], "cells": _SAMPLE})
    return found


def project(
    run: "OpenedRun", name: str, seed: int
) -> tuple[Float[np.ndarray, "n 2"], Int[np.ndarray, " n"] | None, dict[str, Any]]:
    """Places of cells on a map, the cells (``None`` for all), and what the axes say.

    Raises:
        ValueError: There is no such projection for the run.
    """
    if name not in [one["name"] for one in projections_for(run)]:
        raise ValueError(f"There is no projection {name!r} for this run.")
    if name in ("measures", "pca"):
        return run.kept(("map", name), run.config.identity, lambda: _plane(run))
    rows = run.elites(seed)

    def laid_out() -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        count = min(_SAMPLE, len(rows.cells))
        chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
        with _slow:
            spots, (x, y) = _laid_out(rows.measures[chosen], name)
        about = {"x": x, "y": y, "title": f"{_TITLES[name]} of {count:,} elites"}
        return spots, rows.cells[chosen], about

    return run.kept(("map", name), (rows.version, seed), laid_out)


def _plane(run: "OpenedRun") -> tuple[np.ndarray, None, dict[str, Any]]:
    from gloam.plots.plane import Plane  # matplotlib takes a second to import

    plane = Plane(run.archive)
    spots = plane.place(run.centers)
    title = "measures" if plane.whole else "PCA: " + ", ".join(plane.labels)
    about = {"x": plane.labels[0], "y": plane.labels[1], "title": title}
    return spots, None, about


def _laid_out(
    measures: Float[np.ndarray, "n meas"], name: str
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """Places by UMAP or t-SNE; all at one spot where there are too few for it."""
    from threadpoolctl import threadpool_limits

    from gloam.plots.projection import project as places_of

    title = _TITLES[name]
    if len(measures) < _FEWEST:
        return np.zeros((len(measures), 2), np.float32), (f"{title} 1", f"{title} 2")
    # On one core, because the others may be busy with the run that is looked at.
    with threadpool_limits(1):
        return places_of(measures, "umap" if name == "umap" else "tsne")
