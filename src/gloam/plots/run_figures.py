"""All figures of a run folder, and the names of its algorithm and domain."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.errors import ForeignError
from gloam.formats import RunFolder, objects
from gloam.formats.config import RunConfig
from gloam.plots import style
from gloam.plots.discount import algorithm_of, discount_panels
from gloam.plots.grid_view import At, Measure
from gloam.plots.heatmaps import archive_figure
from gloam.plots.many_measures import pairwise
from gloam.plots.metric_curves import curves
from gloam.plots.plane import cell_values

_MAX_NAME = 120
# Objects with larger sizes are not built only to ask for a name.
_MAX_SIZE = 100_000


def plot_run(
    run_dir: str | os.PathLike,
    *,
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    tails: float | None = None,
    pdf: bool = False,
    algorithm: Algorithm | None = None,
) -> list[Path]:
    """Draw a run: ``curves``, ``archive``, ``pairwise`` and ``discount`` in its ``figures/``.

    ``pairwise`` is drawn for three to six measures, and ``discount`` for algorithms with a discount
    model.

    Args:
        run_dir: A folder that `gloam.run` or `gloam.optimize` wrote; the run may still be going.
        measures, at, tails: As in `heatmap`, for the heatmaps.
        pdf: Write PDF files, too.
        algorithm: Needed only if the run's algorithm has parts that gloam cannot load from a file,
            such as a network of your own class.

    Returns:
        The files written.

    Raises:
        ValueError: There is no run in the folder, or it has not written its first checkpoint.
    """
    folder = RunFolder(run_dir).must_hold_run()
    algorithm = algorithm_of(folder, algorithm)
    config, metrics = folder.read_config(), folder.read_metrics()
    name = algorithm_name(config)
    title = f"{name} on {domain_name(config)}"
    figures = {"curves": curves(metrics, title=title, algorithm=name)}
    elites = folder.read_archive(archive=algorithm.archive)
    # The archive is as of the checkpoint; the last row of the metrics may be older.
    note = f"iteration {folder.read_checkpoint_iteration():,}"
    note += f", seed {config.seeds[0]}" if len(config.seeds) > 1 else ""
    view: Any = {"measures": measures, "at": at}
    figures["archive"] = archive_figure(elites, tails=tails, title=title, note=note, **view)
    if len(elites) and 3 <= algorithm.archive.measure_dim <= 6:
        limits = cell_values(elites).limits(tails)
        figures["pairwise"] = pairwise(elites, limits=limits, title=title)
    if isinstance(algorithm.discount, DiscountModel):
        figures["discount"] = discount_panels(folder, algorithm=algorithm, **view)
    return style.save_all(figures, folder.figures, pdf=pdf)


def algorithm_name(config: RunConfig) -> str:
    """Return the name of a run's algorithm, as figures and the explorer show it."""
    name = arguments_of(config.algorithm).get("name")
    return name[:_MAX_NAME] if isinstance(name, str) else _class_name(config.algorithm) or "?"


def domain_name(config: RunConfig) -> str:
    """Return the name of a run, or of its domain, or of the user's function or class."""
    content, arguments = config.domain, arguments_of(config.domain)
    name = config.plan.get("name") or arguments.get("name")
    if name is None and arguments and _is_small(arguments):
        try:
            name = getattr(objects.decode(content, {}), "name", None)
        except (ForeignError, ValueError, TypeError, OverflowError):
            name = None
    if isinstance(name, str):
        return name[:_MAX_NAME]
    short = _class_name(content).rpartition(".")[2]
    return short if short.isidentifier() else "your function"


def arguments_of(content: Any) -> dict[str, Any]:
    """Return the arguments of an encoded object, {} for other content."""
    arguments = content.get("arguments") if isinstance(content, dict) else None
    return arguments if isinstance(arguments, dict) else {}


def _class_name(content: Any) -> str:
    """Return the class of an encoded object (see `gloam.formats.objects`), "" for other content."""
    if not isinstance(content, dict):
        return ""
    name = content.get("class") or str(content.get("foreign", "")).rpartition(":")[2]
    return str(name)[:_MAX_NAME]


def _is_small(content: Any) -> bool:
    """Whether no size in an encoded object is so large that building it takes long."""
    if isinstance(content, dict):
        return all(map(_is_small, content.values()))
    if isinstance(content, list):
        return all(map(_is_small, content))
    return not isinstance(content, int) or abs(content) <= _MAX_SIZE
