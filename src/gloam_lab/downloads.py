"""Downloads of MNIST and Fashion-MNIST, the datasets of the paper's study.

They are resumed where they were interrupted, and verified by their checksums.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gloam._tools import checks, files
from gloam._tools.progress import work_bar

_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_UNREACHABLE = (OSError, http.client.HTTPException)  # OSError: URLError, HTTPError, time-outs


class FetchError(OSError):
    """A file could not be downloaded, or another file is in its place."""


@dataclass(frozen=True)
class Source:
    """Mirrors of a dataset, and the MD5 checksum of each of its files."""

    mirrors: tuple[str, ...]
    files: Mapping[str, str]


_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"

# Mirrors and checksums are those of torchvision.
SOURCES: Mapping[str, Source] = {
    "mnist": Source(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            _TRAIN_IMAGES: "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            _TRAIN_LABELS: "d53e105ee54ea40749a09fcbcd1e9432",
            _TEST_IMAGES: "9fb629c4189551a2d022fa330f9573f3",
            _TEST_LABELS: "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Source(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {
            _TRAIN_IMAGES: "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            _TRAIN_LABELS: "25c81989df183df01b3e8a0aad5dffbe",
            _TEST_IMAGES: "bef4ecab320f06d8554ea6380940ec79",
            _TEST_LABELS: "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}


def fetch(
    name: str,
    folder: str | os.PathLike | None = None,
    *,
    progress: bool = True,
    sources: Mapping[str, Source] = SOURCES,
) -> dict[str, Path]:
    """Download the files of a dataset that are missing.

    Args:
        name: ``"mnist"`` or ``"fashion-mnist"``.
        folder: Folder of the files. Default: a folder of that name in the user's cache.
        progress: Whether to show progress bars.
        sources: The known datasets.

    Returns:
        The path of each file by its name.

    Example:
        >>> files = gloam_lab.fetch("mnist")  # doctest: +SKIP
        >>> data = gloam.datasets.from_idx(*list(files.values())[:2])  # doctest: +SKIP
    """
    checks.expect(name in list(sources), "name", f"one of {sorted(sources)}", repr(name))
    source = sources[name]
    target = files.cache_folder() / "datasets" / name
    if folder is not None:
        target = checks.path("folder", folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = {file: target / file for file in source.files}
    for file, path in paths.items():
        if not path.exists():
            _download(name, path, source, progress)
        elif not path.is_file() or _md5(path) != source.files[file]:
            raise FetchError(
                f"{name}: expected '{path}' to be a file of the dataset, but its MD5 checksum "
                "differs. It may be your own and is not replaced: move it away, or fetch into "
                "another folder."
            )
    return paths


def _download(name: str, path: Path, source: Source, progress: bool) -> None:
    """Download one file from the first mirror that has it with the right checksum."""
    # A name of gloam's own, so that a user's file is neither resumed nor removed.
    part = path.with_name(f".{path.name}.gloam-part")
    failures, problem = [], "cannot be reached"
    for mirror in source.mirrors:
        url = mirror + path.name
        for _ in range(2 if part.is_file() else 1):
            try:
                _resume(url, part, progress)
            except _UNREACHABLE as error:
                failures.append(f"{url} ({error})")
                break
            checksum, expected = _md5(part), source.files[path.name]
            if checksum == expected:
                os.replace(part, path)
                return
            # The earlier part may be damaged: the second attempt starts from the beginning.
            part.unlink()
            problem = "has the wrong checksum"
            failures.append(f"{url} (MD5 checksum {checksum} instead of {expected})")
    raise FetchError(
        f"{name}: '{path.name}' {problem}. Tried {'; '.join(failures)}. Try again later, which "
        f"resumes the download, or download the files yourself ({', '.join(source.files)}) into "
        f"'{path.parent}', or call gloam.datasets.from_idx(images, labels)."
    )


def _resume(url: str, part: Path, progress: bool) -> None:
    """Append the rest of the file at ``url`` to ``part``."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "gloam"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum tells whether there is too much
        raise
    with response:
        # Servers without support for ranges send the whole file.
        is_rest = response.status == http.client.PARTIAL_CONTENT
        have = have if is_rest else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        title = url.rpartition("/")[2]
        with (
            open(part, "ab" if is_rest else "wb") as file,
            work_bar(title, total, show=progress, size_in_bytes=True, done=have) as advance,
        ):
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())
            if total is not None and file.tell() < total:
                raise http.client.IncompleteRead(b"", total - file.tell())


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
