"""All figures of one run, from its folder into its folder."""

import os
from pathlib import Path
from typing import Any, Literal

from gloam import files
from gloam.algorithms import Algorithm
from gloam.datasets import Dataset, Matches, fields
from gloam.discounts import DiscountModel
from gloam.formats import ForeignError, RunFolder
from gloam.plots import style
from gloam.plots.archive import archive_figure
from gloam.plots.curves import curves
from gloam.plots.discount import algorithm_of, discount_panels
from gloam.plots.gallery import Pictures, elite_pictures, gallery, ordered
from gloam.plots.page import page


def plot_run(
    run_dir: str | os.PathLike, *, pdf: bool = False, algorithm: Algorithm | None = None
) -> list[Path]:
    """Draw a run: ``curves``, ``archive`` and ``discount`` in the folder's ``figures/``.

    The figure of the discount function is left out for algorithms without a discount model.

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
    if isinstance(algorithm.discount, DiscountModel):
        figures["discount"] = discount_panels(folder, algorithm=algorithm)
    paths = []
    for stem, figure in figures.items():
        path = style.save(figure, folder.figures / f"{stem}.png", pdf=pdf)
        paths += [path, path.with_suffix(".pdf")] if pdf else [path]
    return paths


def gallery_run(
    run_dir: str | os.PathLike,
    *,
    by: Literal["objective", "distance", "label", "item"] = "objective",
    count: int = 60,
    held_out: Dataset | None = None,
) -> list[Path]:
    """Show a run on a dataset: the page ``gallery.html`` and the table of matches.

    The table is ``matches.csv`` and ``matches.parquet``: item, name, label, objective and distance
    of each elite. Where elites can be shown as pictures (see `gloam.plots.elite_pictures`), the
    page has them, and there is a sheet ``figures/gallery.png``.

    Args:
        run_dir: A folder that `gloam.run` or `gloam.optimize` wrote with ``dataset=...``.
        by: Order of the pairs in the picture.
        count: Pairs in the picture.
        held_out: Items that the search never saw; the page then says how well they are served.

    Returns:
        The files written.
    """
    folder = RunFolder(run_dir).must_hold_run()
    dataset = folder.read_dataset()
    matches = Matches(folder.read_archive(), dataset)
    try:
        domain = folder.read_part("domain")
    except ForeignError:
        domain = None
    title = domain_name(folder)
    small = _pictures(matches, domain)
    table = None if held_out is None else matches.held_out(held_out)
    text = page(matches, small, title=title, held_out=table)
    paths = [folder.path / name for name in ("gallery.html", "matches.csv", "matches.parquet")]
    files.write_bytes(paths[0], text.encode())
    rows = ordered(matches, by)
    files.write_bytes(paths[1], rows.to_csv(index=False).encode())
    files.write_table(paths[2], rows)
    if small is not None:
        figure = gallery(matches, small, by=by, count=count, title=title)
        paths = [style.save(figure, folder.figures / "gallery.png"), *paths]
    return paths


def _pictures(matches: Matches, domain: Any) -> Pictures | None:
    """What the elites look like, or ``None`` for vectors that nothing can show."""
    elites, dataset = matches.elites, matches.dataset
    rendered = callable(getattr(domain, "render", None))
    if rendered or "image" in elites.store.fields or fields.is_picture(dataset.shape):
        return elite_pictures(elites, dataset, domain)
    return None


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
