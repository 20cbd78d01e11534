"""Which files of a run folder are gloam's own."""

import re
from pathlib import Path

from gloam import files

SNAPSHOT = re.compile(r"\d{7,10}\.npz")
ARCHIVE = re.compile(r"archive(-\d+)?\.npz")
# Development versions wrote one checkpoint, state.npz. It is read, and not written any more.
CHECKPOINT = re.compile(r"\d{7,10}\.npz|state\.npz")
# What gloam writes into a run folder, by folder. Nothing else is ever removed or replaced there.
_NAMES = {
    "": r"config\.(json|npz)|metrics\.(parquet|log)|dataset\.npz|(gallery|report)\.html"
    rf"|matches\.(csv|parquet)|failures\.parquet|{ARCHIVE.pattern}",
    "checkpoint": CHECKPOINT.pattern,
    "snapshots": SNAPSHOT.pattern,
    "figures": r"(curves|archive|pairwise|discount|gallery)\.(png|pdf)",
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
