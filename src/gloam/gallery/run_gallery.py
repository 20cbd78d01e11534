"""The gallery of a run on a dataset, from its folder into its folder."""

import contextlib
import os
from pathlib import Path
from typing import Any, Literal

from gloam import files
from gloam.datasets import Dataset, Matches
from gloam.formats import ForeignError, RunFolder
from gloam.gallery.page import page
from gloam.gallery.pairs import Pictures, elite_pictures, gallery, has_pictures, ordered
from gloam.plots import style
from gloam.plots.run_figures import domain_name


def gallery_run(
    run_dir: str | os.PathLike,
    *,
    by: Literal["objective", "distance", "label", "item"] = "objective",
    count: int = 60,
    held_out: Dataset | None = None,
    domain: Any = None,
    title: str = "",
) -> list[Path]:
    """Show a run on a dataset: the page ``gallery.html`` and the table of matches.

    The table is ``matches.csv`` and ``matches.parquet``: item, name, label, objective and distance
    of each elite. Where elites can be shown as pictures (see `gloam.gallery.elite_pictures`), the
    page has them, and there is a sheet ``figures/gallery.png``.

    Args:
        run_dir: A folder that `gloam.run` or `gloam.optimize` wrote with ``dataset=...``.
        by: Order of the pairs in the picture.
        count: Pairs in the picture.
        held_out: Items that the search never saw; the page then says how well they are served.
        domain: What was searched. Needed only when it is not in the run folder, such as a generator
            of pictures.
        title: Heading of the picture and the page; by default the name of the domain.

    Returns:
        The files written.
    """
    folder = RunFolder(run_dir).must_hold_run()
    dataset = folder.read_dataset()
    matches = Matches(folder.read_archive(), dataset)
    if domain is None:
        with contextlib.suppress(ForeignError):
            domain = folder.read_part("domain")
    title = title or domain_name(folder.read_config())
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
    if has_pictures(elites, dataset, domain):
        return elite_pictures(elites, dataset, domain)
    return None
