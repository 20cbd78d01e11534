"""All figures of one run, from its folder into its folder."""

import os
from pathlib import Path

from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.formats import ForeignError, RunFolder
from gloam.plots import style
from gloam.plots.curves import curves
from gloam.plots.discount import algorithm_of, discount_panels
from gloam.plots.heatmap import archive_figure
from gloam.plots.projection_map import pairwise


def plot_run(
    run_dir: str | os.PathLike, *, pdf: bool = False, algorithm: Algorithm | None = None
) -> list[Path]:
    """Draw a run: ``curves``, ``archive``, ``pairwise`` and ``discount`` in its ``figures/``.

    The figure of the pairs of measures is for three to six measures; that of the discount function
    is left out for algorithms without a discount model.

    Args:
        run_dir: A folder that `gloam.run` or `gloam.optimize` wrote; the run may still be going.
        pdf: Write PDF files, too.
        algorithm: Needed only when the run's has parts that gloam does not know, such as a network
            of your own class.

    Returns:
        The files written.

    Raises:
        ValueError: There is no run in the folder, or it has not written its first checkpoint.
    """
    folder = RunFolder(run_dir).must_hold_run()
    algorithm = algorithm_of(folder, algorithm)
    seeds, metrics = folder.read_config().seeds, folder.read_metrics()
    name = type(algorithm).__name__
    title = f"{name} on {domain_name(folder)}"
    figures = {"curves": curves(metrics, title=title, algorithm=name)}
    elites = folder.read_archive(archive=algorithm.archive)
    # The archive is as old as the checkpoint; the last row of the metrics may be older.
    note = f"iteration {folder.read_checkpoint_iteration():,}"
    note += f", seed {seeds[0]}" if len(seeds) > 1 else ""
    figures["archive"] = archive_figure(elites, title=title, note=note)
    if len(elites) and 3 <= algorithm.archive.measure_dim <= 6:
        figures["pairwise"] = pairwise(elites, title=title)
    if isinstance(algorithm.discount, DiscountModel):
        figures["discount"] = discount_panels(folder, algorithm=algorithm)
    paths = []
    for stem, figure in figures.items():
        path = style.save(figure, folder.figures / f"{stem}.png", pdf=pdf)
        paths += [path, path.with_suffix(".pdf")] if pdf else [path]
    return paths


def domain_name(folder: RunFolder) -> str:
    """What the run searched: a domain's name, or that of the user's function or class."""
    content = folder.read_config().domain
    try:
        name = getattr(folder.read_part("domain"), "name", None)
    except ForeignError:
        name = None
    if isinstance(name, str):
        return name
    reference = str(content.get("foreign", "")) if isinstance(content, dict) else ""
    short = reference.rpartition(":")[2].rpartition(".")[2]
    return short if short.isidentifier() else "your function"
