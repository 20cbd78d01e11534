"""What can be wrong with a file or a run folder.

JSON documents with a digest of their content, read without trust.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from gloam import files
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


FORMAT = 1
_MAX_BYTES = 1 << 26


def content_digest(content: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys.

    >>> content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_document(path: Path, content: dict[str, Any], *, kind: str) -> None:
    """Write a JSON object with its kind, format and digest, atomically."""
    whole = {"kind": f"gloam {kind}", "format": FORMAT} | content
    files.write_json(path, whole | {"sha256": content_digest(whole)})


def read_document(path: Path, *, kind: str, fix: str) -> dict[str, Any]:
    """Read a JSON object that `write_document` wrote.

    Args:
        path: The file.
        kind: What it has to be.
        fix: What the user can do when it is damaged.

    Raises:
        DamagedFileError: The file is damaged, of another kind, or not written by gloam.
    """
    problem, content = _read(path)
    if content is None:
        raise DamagedFileError(path, problem, fix)
    if content.get("kind") != f"gloam {kind}":
        raise DamagedFileError(path, f"gloam did not write it as a {kind}", fix)
    if content.get("format") != FORMAT:
        raise DamagedFileError(path, format_problem(content.get("format"), FORMAT), fix)
    sealed = content.pop("sha256", None)
    if sealed != content_digest(content):
        raise DamagedFileError(path, "its content was changed after gloam wrote it", fix)
    return {name: value for name, value in content.items() if name not in ("kind", "format")}


def is_document(path: Path, kind: str) -> bool:
    """Whether a file says that gloam wrote it as a ``kind``; it may be damaged all the same."""
    _, content = _read(path)
    return content is not None and content.get("kind") == f"gloam {kind}"


def _read(path: Path) -> tuple[str, dict[str, Any] | None]:
    """A problem, or the JSON object in a file."""
    try:
        if not path.is_file():
            return "it does not exist or is not a regular file", None
        if path.stat().st_size > _MAX_BYTES:
            return f"it is larger than {_MAX_BYTES >> 20} MB", None
        content = json.loads(path.read_bytes().decode())
    except OSError as error:
        return error.strerror or str(error), None
    except (ValueError, RecursionError):
        return "it is not valid JSON", None
    if not isinstance(content, dict):
        return "it is not a JSON object", None
    return "", content
