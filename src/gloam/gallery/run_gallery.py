"""The gallery of a run on a dataset, written into its run folder."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gloam._tools import files
from gloam.datasets import Dataset, Matches
from gloam.datasets.matches import Order
from gloam.errors import ForeignError
from gloam.formats import RunFolder
from gloam.gallery.html_page import page
from gloam.gallery.pairs import elite_gallery, elite_pictures, gallery, ordered
from gloam.plots import style
from gloam.plots.run_figures import domain_name


def gallery_run(
    run_dir: str | os.PathLike,
    *,
    by: Order = "explained",
    count: int = 60,
    matches: Matches | None = None,
    held_out: Dataset | None = None,
    domain: Any = None,
    draw: Callable[..., Any] | None = None,
    title: str = "",
) -> list[Path]:
    """Write the gallery of a run: ``gallery.html``, ``figures/gallery.png``, and a table.

    The table has a row for each item (see `Matches.table`), as ``matches.csv`` and
    ``matches.parquet``. A run without a dataset gets the figure only, and needs ``draw``.

    Args:
        run_dir: A folder that `gloam.run` or `gloam.optimize` wrote.
        by: Order of the pairs in the figure and the table.
        count: Maximum number of pairs in the figure.
        matches: The matches of the run, if they are known: finding the nearest elites of many items
            takes time. Default: they are read from the run folder.
        held_out: Items that were held out of the search; the page shows their distances.
        domain: The domain that was searched, if it is not in the run folder, such as an image
            generator.
        draw: Makes a picture of a solution, see `gloam.gallery.elite_pictures`.
        title: Heading of the figure and the page. Default: the name of the domain.

    Returns:
        The files written.
    """
    folder = RunFolder(run_dir).must_hold_run()
    config = folder.read_config()
    title = title or domain_name(config)
    if matches is None and config.dataset is None and draw is not None:
        elites = folder.read_archive()
        pictures = elite_pictures(elites, draw=draw)
        figure = elite_gallery(elites, pictures, count=count, title=title)
        return [style.save(figure, folder.figures / "gallery.png")]
    if matches is None:
        matches = Matches(folder.read_archive(), folder.read_dataset())
    if domain is None:
        with contextlib.suppress(ForeignError):
            domain = folder.read_part("domain")
    options: Any = {"by": by, "count": count, "held_out": held_out, "domain": domain, "draw": draw}
    return write_gallery(folder.path, matches, title=title, **options)


def write_gallery(
    folder: Path,
    matches: Matches,
    *,
    by: Order = "explained",
    count: int = 60,
    held_out: Dataset | None = None,
    domain: Any = None,
    draw: Callable[..., Any] | None = None,
    title: str = "",
) -> list[Path]:
    """Write the files of `gallery_run` into a folder, which need not hold a run.

    Args:
        folder: The folder.
        matches: The matches.
        by, count, held_out, domain, draw, title: As for `gallery_run`.
    """
    elites, dataset = matches.elites, matches.dataset
    pictures = elite_pictures(elites, dataset, domain, draw=draw)
    table = None if held_out is None else matches.held_out(held_out)
    text = page(matches, pictures, title=title, held_out=table)
    paths = [folder / name for name in ("gallery.html", "matches.csv", "matches.parquet")]
    files.write_bytes(paths[0], text.encode())
    rows = ordered(matches, by)
    files.write_bytes(paths[1], rows.to_csv(index=False).encode())
    files.write_table(paths[2], rows)
    figure = gallery(matches, pictures, by=by, count=count, title=title)
    return [style.save(figure, folder / "figures" / "gallery.png"), *paths]
