"""Which files of a run folder are gloam's own."""

import re
from pathlib import Path

from gloam import files

SNAPSHOT = re.compile(r"\d{7,10}\.npz")
# What gloam writes into a run folder, by folder. Nothing else is ever removed or replaced there.
_NAMES = {
    "": r"config\.(json|npz)|metrics\.parquet|archive(-\d+)?\.npz|dataset\.npz|gallery\.html"
    r"|matches\.(csv|parquet)|failures\.parquet",
    "checkpoint": r"state\.npz",
    "snapshots": SNAPSHOT.pattern,
    "figures": r"(curves|archive|discount|gallery)\.(png|pdf)",
}
FOLDERS = tuple(filter(None, _NAMES))
"""Folders that gloam makes inside a run folder."""


def own_files(run_folder: Path, *, partial: bool = False) -> list[Path]:
    """Files with the names that gloam gives, or what a killed process began of them.

    Links to other folders are not followed.
    """
    found = []
    for name, pattern in _NAMES.items():
        folder = run_folder / name
        if folder.is_dir() and not (name and folder.is_symlink()):
            wanted = re.compile(files.partial_name(f"({pattern})") if partial else pattern)
            found += [file for file in folder.iterdir() if wanted.fullmatch(file.name)]
    return [file for file in found if file.is_symlink() or file.is_file()]
