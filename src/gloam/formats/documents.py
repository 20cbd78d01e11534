"""JSON documents with a digest of their content, and the errors about files and run folders.

Documents and files of arrays (`gloam.formats.arrays`) state their kind and their format. A file of
another format is refused: see docs/stability.md for what is promised.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gloam._tools import files
from gloam._version import __version__
from gloam.errors import DamagedFileError, ForeignError

FORMAT = 8
"""Format of all files that gloam writes and reads."""
MOVE_FOLDER = "Move it away, or restore the file from a copy."
_MAX_BYTES = 1 << 26
# Folders inside of a run folder that gloam reads from.
_INNER_FOLDERS = ("checkpoint", "snapshots")


def check_is_no_folder(path: Path) -> None:
    """Refuse a folder in the place of a file that gloam reads or writes."""
    if path.is_dir():
        raise DamagedFileError(path, "it is a folder instead of a file", MOVE_FOLDER)


@contextmanager
def content_of(path: Path, fix: str) -> Iterator[None]:
    """Turn errors about the content of a file into a `DamagedFileError` that names the file."""
    try:
        yield
    except (DamagedFileError, ForeignError):
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(path, str(error).rstrip("."), fix) from None
    except RecursionError:
        raise DamagedFileError(path, "its content is nested too deeply", fix) from None


def refuse_outer_link(path: Path) -> None:
    """Refuse a file that a link inside of a run folder takes from outside of it.

    A folder of someone else could otherwise show any file that the user can read as its own. The
    run folder itself may be a link.

    Raises:
        ValueError: The file, or the folder of checkpoints or snapshots, is such a link.
    """
    folder = path.parent.parent if path.parent.name in _INNER_FOLDERS else path.parent
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ValueError("a link leads from there out of the folder, and is not followed")


def check_format(number: Any) -> None:
    """Refuse the format of another version of gloam.

    >>> check_format(FORMAT)
    """
    if number == FORMAT and type(number) is int:
        return
    problem = (
        f"it has format {number!r}, and this version of gloam ({__version__}) reads format {FORMAT}"
    )
    if type(number) is int:
        age = "a newer" if number > FORMAT else "an older"
        problem += f"; {age} version of gloam wrote it, and can read it"
    raise ValueError(problem)


def content_digest(content: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of keys.

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
        kind: Expected kind.
        fix: What the user can do when the file is damaged.

    Raises:
        DamagedFileError: The file is damaged, of another kind, or not written by gloam.
    """
    with content_of(path, fix):
        content = _read_object(path)
        sealed = content.pop("sha256", None)
        if content.get("kind") != f"gloam {kind}":
            raise ValueError(f"gloam did not write it as a {kind}")
        check_format(content.get("format"))
        if sealed != content_digest(content):
            raise ValueError("its content was changed after gloam wrote it")
        return {name: value for name, value in content.items() if name not in ("kind", "format")}


def is_document(path: Path, kind: str) -> bool:
    """Whether a file claims to be gloam's document of a ``kind``; it may still be damaged."""
    try:
        return _read_object(path).get("kind") == f"gloam {kind}"
    except ValueError:
        return False


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise ValueError("it does not exist or is not a regular file")
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MB")
        refuse_outer_link(path)
        text = path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is not valid JSON") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content
