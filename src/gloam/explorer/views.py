"""What the page asks for, by name: the same answers serve the explorer and the report."""

from typing import Any

import numpy as np

from gloam.datasets import Matches
from gloam.explorer.archive_views import described_archive, distances_of, moments_of, packed
from gloam.explorer.discount_view import has_model
from gloam.explorer.library import Entry, Library, read_study
from gloam.explorer.opened_run import OpenedRun, elites_version, has_elites, newest_checkpoint
from gloam.formats import DamagedFileError

READ_ERRORS = (ValueError, OSError, MemoryError)
"""What reading a run folder can raise: damaged files, parts of the user's own, no permission."""


def folder_view(library: Library) -> dict[str, Any]:
    """All runs and studies with their summaries."""
    contents = library.look()
    runs = [run_summary(library, entry) for entry in contents.runs.values()]
    studies = [_study(library, entry, runs) for entry in contents.studies.values()]
    return {
        "folder": library.root.name,
        "complete": contents.complete,
        "runs": sorted(runs, key=lambda run: run["name"]),
        "studies": sorted(studies, key=lambda study: study["name"]),
    }


def run_summary(library: Library, entry: Entry) -> dict[str, Any]:
    """The summary of a run; of one that cannot be read, its state and the reason."""
    about = {"id": entry.id, "name": entry.name}
    try:
        found = library.summaries.summary(entry.path)
        version = elites_version(entry.path, found["seeds"]) if "seeds" in found else None
        return about | found | {"version": version, "elites": has_elites(entry.path)}
    except READ_ERRORS as error:
        return about | {"state": "damaged", "reason": str(error)}


def parts_view(library: Library, entry: Entry) -> dict[str, Any]:
    """What can be looked at of a run: its archive, recorded iterations, model and pictures.

    Raises:
        ValueError, OSError: The folder cannot be read.
    """
    run = library.opened(entry)
    moments = moments_of(run)
    recorded = bool(moments) or newest_checkpoint(entry.path) is not None
    return {
        "archive": described_archive(run),
        "moments": moments,
        "model": recorded and has_model(run),
        "pictures": _picture_sides(run),
    }


def metrics_view(library: Library, entry: Entry) -> bytes:
    """The metrics of a run, a packed array for each column."""
    table, _ = library.summaries.metrics(entry.path)
    names = [name for name in table.columns if table[name].dtype.kind in "biuf"]
    arrays = {name: table[name].to_numpy(np.float64) for name in names}
    return packed(arrays, {"rows": len(table)})


def pairs_view(run: OpenedRun, seed: int) -> dict[str, Any]:
    """The items of the dataset, and for those with an elite its objective and distance."""
    dataset = run.dataset
    if dataset is None:
        raise ValueError("The run has no dataset.")
    rows = run.elites(seed)
    distances = distances_of(run, rows)
    assert distances is not None, "archives of datasets have centroids"
    return {
        "names": list(dataset.names),
        "labels": None if dataset.labels is None else list(dataset.labels),
        "cells": rows.cells,
        "objective": _short(rows.objectives),
        "distance": _short(distances),
        "coverage": Matches(rows.elites, dataset).coverage(),
    }


def _picture_sides(run: OpenedRun) -> dict[str, bool]:
    """Whether elites and items can be shown as pictures."""
    dataset = run.dataset
    if dataset is None:
        return {"solution": False, "item": False}
    try:
        shown = run.pictures(run.elites(run.config.seeds[0])) is not None
    except (DamagedFileError, ValueError):  # before the first checkpoint
        shown = False
    return {"solution": shown, "item": dataset.has_images}


def _study(library: Library, entry: Entry, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A study with the runs of each of its pairs of domain and algorithm."""
    about = {"id": entry.id, "name": entry.name}
    try:
        content = read_study(entry)
    except READ_ERRORS as error:
        return about | {"state": "damaged", "reason": str(error), "cells": []}
    top = "" if entry.path == library.root else f"{entry.name}/"
    cells = []
    for domain in content["domains"]:
        for algorithm in content["algorithms"]:
            place = f"{top}{domain}/{algorithm}"
            own = [run["id"] for run in runs if _is_part(run["name"], place)]
            if own:
                cells.append({"domain": domain, "algorithm": algorithm, "runs": own})
    return about | content | {"cells": cells, "titles": _titles(content)}


def _is_part(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}/part-")


def _titles(content: dict[str, Any]) -> dict[str, str]:
    from gloam.experiments.published import title

    return {name: title(name) for name in (*content["domains"], *content["algorithms"])}


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
