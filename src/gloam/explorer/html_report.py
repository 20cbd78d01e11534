"""A report: one HTML file with the views of the explorer and the data of a run or a study in it."""

import os
from pathlib import Path
from typing import Any

from gloam import checks, files
from gloam._version import __version__
from gloam.explorer.library import Library
from gloam.explorer.packing import json_bytes
from gloam.explorer.report_parts import Parts, add_run
from gloam.explorer.static_files import (
    import_map,
    modules,
    script_digest,
    static_files,
    style_names,
)
from gloam.explorer.views import folder_view, metrics_view, run_summary

MAX_BYTES = 9_500_000
"""Largest size of a report."""
_START = 'import "gloam/main";'
_MARK = '<meta name="generator" content="gloam report">'


def write_html(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Path:
    """Write a run or a study as one HTML file that opens from a disk and loads nothing.

    The file has the views of `gloam explore`, for the first seed of a run, and is smaller than
    10 MB: of a large archive it has a coarser picture, of a large dataset fewer pictures, and of
    long solutions none.

    Args:
        path: A run folder or a study folder.
        out: The file; by default ``report.html`` in the run folder, or ``report/report.html`` in
            the study folder.

    Returns:
        The file.

    Raises:
        ValueError: There is neither a run nor a study in the folder, or the file exists and is not
            a report of gloam.
    """
    root = Path(path)
    library = Library(root)
    contents = library.look()
    study = next((one for one in contents.studies.values() if one.path == library.root), None)
    run = next((one for one in contents.runs.values() if one.path == library.root), None)
    checks.expect(
        (study or run) is not None,
        "folder",
        "the folder of a run or of a study",
        f"'{root}'",
        "Give a folder that has a config.json or a study.json of gloam.",
    )
    usual = root / "report" / "report.html" if study else root / "report.html"
    place = usual if out is None else Path(out)
    check_replaceable(place)
    budget = MAX_BYTES - len(_page({}).encode())
    if run is not None and study is None:
        data = _run_data(library, root, budget)
        data["about"]["start"] = f"#/run/{run.id}"
    else:
        assert study is not None
        data = _study_data(library, budget)
        data["about"]["start"] = f"#/study/{study.id}"
    files.write_bytes(place, _page(data).encode())
    return place


def check_replaceable(place: Path) -> None:
    """Refuse to replace a file that is not a report of gloam."""
    if not place.exists():
        return
    with files.open_regular(place) as file:
        ours = _MARK.encode() in file.read(2000)
    fix = "Move it away, or choose another file by --out."
    checks.expect(ours, "out", "a new file or a report of gloam", f"'{place}'", fix)


def _run_data(library: Library, root: Path, budget: int) -> dict[str, Any]:
    parts = Parts(budget)
    (entry,) = [one for one in library.look().runs.values() if one.path == library.root]
    parts.add_json("folder", folder_view(library))
    if run_summary(library, entry).get("results") is not None:
        parts.add_arrays(f"runs/{entry.id}/metrics", metrics_view(library, entry))
    add_run(parts, library, entry, str(root))
    return parts.data | {"about": {"version": __version__}}


def _study_data(library: Library, budget: int) -> dict[str, Any]:
    """All curves of a study, and the archives of its runs as far as there is room."""
    parts = Parts(budget)
    folder = folder_view(library)
    parts.add_json("folder", folder)
    runs = library.look().runs
    readable = [run["id"] for run in folder["runs"] if run.get("results")]
    for run_id in readable:
        parts.add_arrays(f"runs/{run_id}/metrics", metrics_view(library, runs[run_id]))
    for number, run_id in enumerate(readable):
        entry = runs[run_id]
        share = (parts.left - 200_000) // max(1, len(readable) - number)
        add_run(parts.share(share), library, entry, os.path.relpath(entry.path, library.root))
    return parts.data | {"about": {"version": __version__}}


def _page(data: dict[str, Any]) -> str:
    """The page with its data, styles and modules in it."""
    sources = static_files()
    addresses = {name: _data_address(sources[file].content) for name, file in modules().items()}
    imports = import_map(addresses)
    styles = "\n".join(sources[name].content.decode() for name in style_names())
    digests = [script_digest(text) for text in (imports, _START)]
    # The modules are addresses of data. Nothing that a user named is markup on the page: it is all
    # in the JSON, from which scripts cannot come.
    policy = (
        "default-src 'none'; script-src "
        + " ".join(f"'sha256-{digest}'" for digest in digests)
        + f" data:; style-src 'sha256-{script_digest(styles)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    text = json_bytes(data).decode().replace("<", "\\u003c")
    icon = _data_address(sources["icon.svg"].content, "image/svg+xml")
    head = (
        f'{_MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<link rel="icon" href="{icon}">\n<style>{styles}</style>'
    )
    scripts = (
        f'<script type="application/json" id="report-data">{text}</script>\n'
        f'<script type="importmap">{imports}</script>\n<script type="module">{_START}</script>'
    )
    page = sources["index.html"].content.decode()
    before, _, rest = page.partition("<!--styles-->")
    middle, _, end = rest.partition("<!--scripts-->")
    return before + head + middle + scripts + end


def _data_address(content: bytes, kind: str = "text/javascript") -> str:
    import base64

    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
