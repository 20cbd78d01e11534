"""Files of arrays: uncompressed ``.npz`` with a digest of every array, validated on read.

A member ``gloam`` states the kind of the file, its format and the digests of its arrays, so that a
damaged file is refused instead of being read as other numbers. Declared sizes are checked against
the size of the file before anything is allocated.

The package safetensors would not replace this: it writes from copies of all arrays, where states of
gigabytes have to leave the device one array at a time, and has neither digests nor arrays of text.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from gloam._tools import files
from gloam.errors import DamagedFileError
from gloam.formats.documents import FORMAT, check_format, refuse_outer_link

Prefix = str | tuple[str, ...]
"""A prefix of names, or a tuple of prefixes; an empty tuple selects no names."""

_MANIFEST = "gloam"
_MANIFEST_TYPES = {"kind": str, "format": int, "about": dict, "arrays": dict}
_MAX_MANIFEST_BYTES = 1 << 26
_PIECE_BYTES = 1 << 22
# NumPy writes these as raw bytes without a name, so they are stored as integers of their size.
_NAMED_DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
}


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], *, kind: str, about: Mapping[str, Any] = {}
) -> None:
    """Write arrays with their digests, atomically.

    Args:
        path: The file.
        arrays: Arrays by name; ``gloam`` is reserved.
        kind: Kind of the file, such as ``"checkpoint"``, which is checked on read.
        about: JSON values to keep beside the arrays. The identity of a run is ``about["run"]``.
    """
    files.write(path, lambda file: _write(file, arrays, kind, about))


def read_arrays(
    path: Path, *, kind: str, fix: str, run: str | None = None, prefix: Prefix = ""
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays that `write_arrays` wrote, and the values beside them.

    Args:
        path: The file. A link that leads out of its folder is refused.
        kind: Expected kind.
        fix: What the user can do when the file is damaged.
        run: Identity of the run that the file has to belong to, if any.
        prefix: Read only arrays whose names begin with it, or with one of several.

    Raises:
        DamagedFileError: The file is damaged, of another kind or run, or not written by gloam.
    """
    try:
        refuse_outer_link(path)
        with files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            members = _members(archive, size)
            manifest = _read_manifest(archive, members, size)
            if manifest["kind"] != kind:
                raise ValueError(f"it is a file of kind '{manifest['kind']}', not '{kind}'")
            if run is not None and manifest["about"].get("run") != run:
                raise ValueError("it belongs to another run")
            declared = manifest["arrays"]
            if set(declared) != set(members) - {_MANIFEST}:
                raise ValueError("its list of arrays does not agree with its content")
            arrays = {
                name: _checked(_read_member(archive, members[name], size), name, entry)
                for name, entry in declared.items()
                if name.startswith(prefix)
            }
    except Exception as error:  # zip files and headers can be wrong in many ways
        raise DamagedFileError(path, _reason(error), fix) from None
    return arrays, manifest["about"]


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's dtype, shape and content.

    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    """
    sha256 = _begun_digest(array)
    sha256.update(_bytes_of(np.ascontiguousarray(array)))
    return sha256.hexdigest()


def raw_array(leaf: Any) -> np.ndarray:
    """Return a leaf of a state as a NumPy array; a random key as its raw words."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _begun_digest(array: np.ndarray) -> Any:
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode())


def _bytes_of(array: np.ndarray) -> memoryview:
    """The content of an array in C order, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _write(
    file: IO[bytes], arrays: Mapping[str, np.ndarray], kind: str, about: Mapping[str, Any]
) -> None:
    """Write one array after the other, so that only one is copied from the device at a time."""
    declared = {}
    with zipfile.ZipFile(file, "w") as archive:
        for name, given in arrays.items():
            array = np.asarray(given)
            sha256 = _write_member(archive, name, array)
            declared[name] = {"dtype": str(array.dtype), "sha256": sha256}
        manifest = {"kind": kind, "format": FORMAT, "about": dict(about), "arrays": declared}
        text = json.dumps(manifest, sort_keys=True).encode()
        sealed = hashlib.sha256(text).hexdigest().encode() + text
        _write_member(archive, _MANIFEST, np.frombuffer(sealed, np.uint8))


def _write_member(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> str:
    """Write one array without a copy of it, and return its digest."""
    stored = np.require(_storable(array), requirements="C")
    sha256 = _begun_digest(array)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        described = np.lib.format.header_data_from_array_1_0(stored)
        np.lib.format.write_array_header_1_0(member, described)
        content = _bytes_of(stored)
        for start in range(0, len(content), _PIECE_BYTES):
            piece = content[start : start + _PIECE_BYTES]
            sha256.update(piece)
            member.write(piece)
    return sha256.hexdigest()


def _storable(array: np.ndarray) -> np.ndarray:
    if str(array.dtype) in _NAMED_DTYPES:
        return array.view(np.dtype(f"u{array.dtype.itemsize}"))
    if array.dtype.kind not in "biufU":
        raise ValueError(f"Arrays of dtype {array.dtype} cannot be written. Convert it to numbers.")
    return array


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"it has two arrays '{name}'")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
            raise ValueError(f"its array '{name}' is compressed, or larger than the file")
        members[name] = info
    return members


def _read_manifest(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], size: int
) -> dict[str, Any]:
    if _MANIFEST not in members:
        raise ValueError("it was not written by gloam")
    limit = min(size, _MAX_MANIFEST_BYTES)
    content = _read_member(archive, members[_MANIFEST], limit).tobytes()
    sealed, text = content[:64], content[64:]
    if hashlib.sha256(text).hexdigest().encode() != sealed:
        raise ValueError("its digest does not agree with its content")
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.keys() != _MANIFEST_TYPES.keys():
        raise ValueError("its manifest has other entries than gloam writes")
    if not all(isinstance(manifest[name], kind) for name, kind in _MANIFEST_TYPES.items()):
        raise ValueError("its manifest has other entries than gloam writes")
    check_format(manifest["format"])
    return manifest


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> np.ndarray:
    """One array, its declared size checked against ``limit`` bytes before it is allocated."""
    with archive.open(info) as member:
        return files.read_npy(member, info.file_size, limit)


def _checked(array: np.ndarray, name: str, entry: Any) -> np.ndarray:
    if not (isinstance(entry, dict) and entry.keys() == {"dtype", "sha256"}):
        raise ValueError(f"its manifest does not describe its array '{name}'")
    if entry["dtype"] in _NAMED_DTYPES:
        array = array.view(_NAMED_DTYPES[entry["dtype"]])
    if str(array.dtype) != entry["dtype"] or digest(array) != entry["sha256"]:
        raise ValueError(f"its array '{name}' does not agree with its digest")
    return array


def _reason(error: Exception) -> str:
    """Return a short reason, without advice of a library such as to load a pickle."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, OSError):
        return error.strerror or str(error).split(": '")[0]
    if isinstance(error, ValueError) and "pickle" not in str(error):
        return str(error).split("\n")[0].rstrip(".")
    return f"it is damaged or not a file of arrays ({type(error).__name__})"
