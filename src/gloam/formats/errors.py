"""What can be wrong with a file or a run folder."""

import os
from pathlib import Path
from typing import Any

from gloam._version import __version__


class DamagedFileError(ValueError):
    """A file is damaged, or was not written by gloam for this place.

    Args:
        path: The file.
        problem: What is wrong with it, as a part of a sentence.
        fix: What the user can do.
    """

    def __init__(self, path: str | os.PathLike, problem: str, fix: str):
        self.path = Path(path)
        self.problem = problem
        super().__init__(f"'{path}' cannot be used: {problem}. {fix}")


class ForeignError(ValueError):
    """A file refers to something that only the user's own program can build.

    Args:
        name: Module and name of the user's object, as the file has it.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            f"The file refers to {name}, which is not part of gloam and is never loaded from a "
            "file. Pass the object itself: call gloam.run or gloam.optimize again with the same "
            "settings and resume=True, or Search.load(path, algorithm)."
        )


class RunExistsError(ValueError):
    """A run was begun in a folder, and the caller did not say what should become of it."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        super().__init__(
            f"'{run_dir}' already holds a run. Pass resume=True to continue it, or choose another "
            "folder."
        )


class LockedError(ValueError):
    """Another process is writing to a run folder."""

    def __init__(self, run_dir: Path, holder: str):
        self.run_dir = run_dir
        super().__init__(
            f"'{run_dir}' is in use by {holder}. Wait until it has finished, stop it, or choose "
            "another folder."
        )


def format_problem(found: Any, known: int) -> str:
    """What is wrong with a file of another format, as a part of a sentence.

    >>> format_problem(2, 1).partition("reads ")[2]
    'format 1; a newer version of gloam wrote it, and can read it'
    """
    told = (
        f"it has format {found!r}, and this version of gloam ({__version__}) reads format {known}"
    )
    if not isinstance(found, int) or isinstance(found, bool):
        return told
    age = "a newer" if found > known else "an older"
    return f"{told}; {age} version of gloam wrote it, and can read it"
