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
_PACKAGES = {"umap": "umap", "t-sne": "sklearn"}
_slow = threading.Lock()


def projections_for(run: "OpenedRun") -> list[dict[str, Any]]:
    """Projections that can be chosen for a run, the first being the default."""
    if run.archive.measure_dim <= 2:
        return [{"name": "measures", "title": "measures", "cells": None}]
    found = [{"name": "pca", "title": "PCA", "cells": None}]
    titles = {"umap": "UMAP", "t-sne": "t-SNE"}
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(package) is not None:
            found.append({"name": name, "title": titles[name], "cells": _SAMPLE})
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
            spots = _umap(rows.measures[chosen]) if name == "umap" else _tsne(rows.measures[chosen])
        title = "UMAP" if name == "umap" else "t-SNE"
        about = {"x": f"{title} 1", "y": f"{title} 2", "title": f"{title} of {count:,} elites"}
        return spots, rows.cells[chosen], about

    return run.kept(("map", name), (rows.version, seed), laid_out)


def _plane(run: "OpenedRun") -> tuple[np.ndarray, None, dict[str, Any]]:
    from gloam.plots.plane import Plane  # matplotlib takes a second to import

    plane = Plane(run.archive)
    spots = plane.place(run.centers)
    title = "measures" if plane.whole else "PCA: " + ", ".join(plane.labels)
    about = {"x": plane.labels[0], "y": plane.labels[1], "title": title}
    return spots, None, about


def _tsne(measures: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(measures) < 4:
        return np.zeros((len(measures), 2), np.float32)
    perplexity = min(30.0, (len(measures) - 1) / 3)
    # On one core, because the others may be busy with the run that is looked at.
    with threadpool_limits(1):
        return TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(measures)


def _umap(measures: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
    import umap  # pyright: ignore[reportMissingImports]

    return np.asarray(umap.UMAP(n_components=2, random_state=0).fit_transform(measures))
