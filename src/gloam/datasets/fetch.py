"""Downloads of well-known datasets: continued where they broke off, checked by their checksums.

Datasets of handwritten digits: those that come with gloam, and scikit-learn's.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gloam import checks, files
from gloam.datasets.dataset import Dataset
from gloam.datasets.readers import from_array
from gloam.datasets.rows import ZippedArrays
from gloam.files import cache_folder
from gloam.progress import work_bar

_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_UNREACHABLE = (OSError, http.client.HTTPException)  # OSError: URLError, HTTPError, time-outs


@dataclass(frozen=True)
class Source:
    """Where a dataset's files are, and the MD5 checksum of each."""

    mirrors: tuple[str, ...]
    files: Mapping[str, str]


_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"

# Mirrors and checksums are those that torchvision uses.
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


class FetchError(RuntimeError):
    """A file could not be downloaded, or one is in its place that is not the dataset's."""


def fetch(
    name: str,
    folder: str | os.PathLike | None = None,
    *,
    progress: bool = True,
    sources: Mapping[str, Source] = SOURCES,
) -> dict[str, Path]:
    """Download a dataset's files, unless they are there already.

    Args:
        name: ``"mnist"`` or ``"fashion-mnist"``.
        folder: Where the files go; by default a folder of that name in the user's cache.
        progress: Whether to show bars.
        sources: The datasets known.

    Returns:
        The path of each file by its name.

    Example:
        >>> files = fetch("mnist")  # doctest: +SKIP
        >>> from_idx(files["t10k-images-idx3-ubyte.gz"], files["t10k-labels-idx1-ubyte.gz"])
        ... # doctest: +SKIP
    """
    checks.expect(name in sources, "name", f"one of {sorted(sources)}", repr(name))
    source = sources[name]
    place = cache_folder() / "datasets" / name if folder is None else Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = {file: place / file for file in source.files}
    for file, checksum in source.files.items():
        if not paths[file].exists():
            _download(name, paths[file], source, progress)
        elif not paths[file].is_file() or _md5(paths[file]) != checksum:
            raise FetchError(
                f"{name}: expected '{paths[file]}' to be the file of the dataset, got another one, "
                "by its MD5 checksum. It may be your own and is not replaced: move it away, or "
                "fetch into another folder."
            )
    return paths


def _download(name: str, path: Path, source: Source, progress: bool) -> None:
    """Bring one file here from the first mirror that has it right."""
    failures, problem = [], "cannot be reached"
    for mirror in source.mirrors:
        # A name of gloam's own: a file of the user's called '.part' is not continued or removed.
        part = path.with_name(f".{path.name}.gloam-part")
        continued = part.is_file()
        for _ in range(2 if continued else 1):
            try:
                _continue(mirror + path.name, part, progress)
            except _UNREACHABLE as error:
                failures.append(f"{mirror + path.name} ({error})")
                break
            checksum = _md5(part)
            if checksum == source.files[path.name]:
                os.replace(part, path)
                return
            # A wrong beginning spoils the whole: once more from the start.
            part.unlink()
            problem = "has the wrong checksum"
            failures.append(
                f"{mirror + path.name} (MD5 checksum {checksum} instead of "
                f"{source.files[path.name]})"
            )
    raise FetchError(
        f"{name}: '{path.name}' {problem}. Tried {'; '.join(failures)}. Try again later, which "
        f"goes on where this ended, or download the files yourself ({', '.join(source.files)}) and "
        f"give their path: put them into '{path.parent}', or call "
        "gloam.datasets.from_idx(images, labels)."
    )


def _continue(url: str, part: Path, progress: bool) -> None:
    """Append to ``part`` what it lacks of the file at ``url``."""
    # Not by pooch, which downloads a file from its beginning each time.
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "gloam"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is lacking; the checksum tells whether there is too much
        raise
    with response:
        # A server that knows no ranges sends the whole file.
        goes_on = response.status == http.client.PARTIAL_CONTENT
        have = have if goes_on else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        title = url.rpartition("/")[2]
        with (
            open(part, "ab" if goes_on else "wb") as file,
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


HANDWRITTEN_FILE = Path(__file__).with_name("handwritten_digits.npz")
"""Arrays of `handwritten_digits`; the text file beside it says where they come from."""


def digits() -> Dataset:
    """Scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, with their labels.

    Raises:
        ValueError: Scikit-learn is not installed.

    Example:
        >>> digits().shape
        (8, 8)
    """
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("The digits need scikit-learn. Run: pip install 'gloam[demo]'") from error
    found: Any = load_digits()
    return from_array(found.images / np.float32(16), labels=[str(label) for label in found.target])


def handwritten_digits() -> Dataset:
    """1,000 handwritten digits of MNIST, 28 x 28 pixels, with their labels.

    They come with gloam. `gloam.generators.Decoder.digits` was not trained on them. A digit's name
    is its place among the training images of MNIST.

    Example:
        >>> data = handwritten_digits()
        >>> data, data.names[0], data.labels[0]
        (Dataset(1000 items of shape (28, 28), 10 labels), '9000', '6')
    """
    with files.open_regular(HANDWRITTEN_FILE) as opened:
        arrays = ZippedArrays(opened)
        images, labels, places = (arrays.read(name) for name in ("images", "labels", "places"))
    # Without a source: a cache of embeddings would be written beside it, into the package.
    return from_array(images, [str(label) for label in labels], names=[str(p) for p in places])
