"""One picture file as uint8 pixels of a given size, whatever its own size and mode.

Datasets from a folder of pictures.
"""

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import UInt8

from gloam import checks, files
from gloam.datasets import rows
from gloam.datasets import rows as limits
from gloam.datasets.dataset import Dataset, Skipped
from gloam.datasets.embedding import embed_all
from gloam.progress import work_bar

if TYPE_CHECKING:
    from PIL.Image import Image


SUFFIXES = frozenset(
    [
        ".avif",
        ".bmp",
        ".dib",
        ".gif",
        ".ico",
        ".jfif",
        ".jp2",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tga",
        ".tif",
        ".tiff",
        ".webp",
    ]
)
"""Names of picture files end with one of these."""


def read_picture(
    path: str | os.PathLike,
    size: tuple[int, int],
    mode: Literal["L", "RGB"],
    *,
    crop: bool = True,
    background: int = 255,
) -> UInt8[np.ndarray, "height width *channels"]:
    """The pixels of a picture file; of several frames, the first.

    Args:
        path: The file.
        size: Height and width of the result.
        mode: ``"L"`` for gray values, ``"RGB"`` for colours.
        crop: Whether the middle is cut out, in the shape of ``size``, or all of it squeezed.
        background: Gray value that shows through where the picture is transparent.
    """
    from PIL import Image, ImageOps

    height, width = size
    # A pipe or a device would block, or never end.
    with files.open_regular(path) as file, Image.open(file) as opened:
        # A JPEG file can be decoded small: quicker by far for photographs. The longer side counts
        # for both, as the picture may yet be turned.
        opened.draft(None, (2 * max(size), 2 * max(size)))
        try:
            turned = ImageOps.exif_transpose(opened)
        except Exception:  # spoilt notes on how the camera was held do not spoil the pixels
            turned = opened
        picture = _opaque(turned, background).convert(mode)
    resampling = Image.Resampling.LANCZOS
    if crop:
        return np.asarray(ImageOps.fit(picture, (width, height), resampling))
    return np.asarray(picture.resize((width, height), resampling))


@contextmanager
def pixel_limit(max_pixels: int) -> Iterator[None]:
    """Refuse pictures of more pixels, by Pillow's own check, while the block runs.

    Pillow's warnings about damaged files are not shown: a picture is read, or it is skipped.
    """
    from PIL import Image

    usual = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        Image.MAX_IMAGE_PIXELS = max_pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = usual


def _opaque(picture: "Image", background: int) -> "Image":
    """The picture in 8 bits, without palette and transparency."""
    from PIL import Image

    if picture.mode[0] in "IF":
        return _eight_bits(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        behind = Image.new("RGBA", picture.size, (background, background, background, 255))
        return Image.alpha_composite(behind, picture).convert("RGB")
    return picture if picture.mode == "L" else picture.convert("RGB")


def _eight_bits(picture: "Image") -> "Image":
    """Gray values of 16 bits, 32 bits or floats, brought to 0 to 255."""
    from PIL import Image

    values = np.asarray(picture).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are NaN or infinite")
    low, high = values.min(), values.max()
    usual = 1.0 if picture.mode == "F" else 65535.0
    if low >= 0 and high <= usual:
        low, high = 0.0, usual
    # Values beyond what is usual have no scale but their own.
    scaled = (values - low) * (255 / (high - low if high > low else 1.0))
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


def from_folder(
    path: str | os.PathLike,
    size: tuple[int, int] = (28, 28),
    mode: Literal["L", "RGB"] = "L",
    *,
    crop: bool = True,
    background: int = 255,
    embed: Callable[[np.ndarray], Any] | None = None,
    batch: int = 256,
    cache: bool | str | os.PathLike = True,
    max_pixels: int = 89_478_485,
    max_items: int | None = None,
    skip_broken: bool = True,
    progress: bool = True,
) -> Dataset:
    """A dataset from all pictures in a folder and the folders in it.

    Files that cannot be read are left out with a warning; ``skipped`` names them. Files that are
    not pictures by their name, and hidden ones, do not count.

    Args:
        path: The folder. Pictures in folders below it have the folder's name as their label.
        size: Height and width that all pictures are brought to.
        mode: ``"L"`` for gray values, ``"RGB"`` for colours. Values are scaled to [0, 1].
        crop: Whether the middle is cut out of a picture of another shape, or all of it squeezed.
        background: Gray value, 0 to 255, that shows through where a picture is transparent.
        embed, batch, cache: As in `Dataset.embedded`: if given, the items are the vectors that
            ``embed`` makes of the pictures.
        max_pixels: Pictures of more pixels are left out. The default is Pillow's limit: a small
            file can declare a picture that fills the memory.
        max_items: Of a folder with more pictures, so many are read, drawn at random and always the
            same. By default all are.
        skip_broken: Whether files that cannot be read are left out, or are an error.
        progress: Whether to show bars.
    """
    folder = Path(path)
    fix = "Read a file by from_file." if folder.is_file() else "Check the path."
    checks.expect(folder.is_dir(), "path", "an existing folder", f"'{path}'", fix)
    checks.expect(np.shape(size) == (2,), "size", "(height, width)", repr(size))
    height, width = (checks.integer("size", side, minimum=1) for side in size)
    checks.expect(mode in ("L", "RGB"), "mode", "'L' (gray) or 'RGB'", repr(mode))
    gray = checks.integer("background", background, minimum=0)
    checks.expect(gray <= 255, "background", "a gray value from 0 to 255", background)
    max_pixels = checks.integer("max_pixels", max_pixels, minimum=1)
    checks.expect(embed is None or callable(embed), "embed", "a function of a batch", repr(embed))

    files = _files(folder)
    checks.expect(
        len(files) > 0,
        "path",
        "a folder with pictures",
        f"'{path}', which has none",
        f"{_others(folder)}Pictures are files that end with {' '.join(sorted(SUFFIXES))}.",
    )
    if max_items is not None and len(files) > checks.integer("max_items", max_items, minimum=2):
        drawn = np.random.default_rng(0).permutation(len(files))[:max_items]
        files = [files[number] for number in sorted(drawn.tolist())]
    names = [file.relative_to(folder).as_posix() for file in files]
    pictures = np.empty((len(files), height, width, *([3] if mode == "RGB" else [])), np.uint8)

    def read(number: int) -> Skipped | None:
        try:
            pictures[number] = read_picture(
                files[number], (height, width), mode, crop=crop, background=gray
            )
        except Exception as error:  # decoders fail in many ways, none of which is ours
            # Pillow names the open file as Python shows it.
            reason = re.sub(r" *<_io\.[^>]*>", "", str(error))
            reason = reason.replace(str(files[number]), names[number])
            return Skipped(names[number], reason or type(error).__name__)
        return None

    with (
        pixel_limit(max_pixels),
        work_bar("reading pictures", len(files), show=progress) as advance,
        ThreadPoolExecutor() as pool,
    ):
        failures = []
        try:
            for failure in pool.map(read, range(len(files))):
                failures.append(failure)
                advance(1)
        except BaseException:  # Ctrl-C does not wait until all the others are read
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    skipped = tuple(failure for failure in failures if failure is not None)
    if skipped:
        _report(skipped, len(files), path, skip_broken)
        good = [number for number, failure in enumerate(failures) if failure is None]
        pictures, names = pictures[good], [names[number] for number in good]

    labels = [os.path.dirname(name) for name in names]
    labels = labels if any(labels) else None
    if embed is None:
        items = np.divide(pictures, np.float32(255), dtype=np.float32)
        with limits.naming(folder):
            return Dataset(
                items, labels=labels, names=names, skipped=skipped, source=folder, fresh=True
            )
    # Equal pictures are embedded once. Their pixels as floats, four times as large, are not made.
    kept, place = rows.first_of_equal(pictures[block] for block in rows.blocks(pictures))
    pictures = pictures[kept] if len(kept) < len(pictures) else pictures
    vectors = embed_all(embed, pictures, batch=batch, cache=cache, source=folder, progress=progress)
    with limits.naming(folder):
        return Dataset(
            vectors,
            labels=None if labels is None else [labels[row] for row in kept],
            names=[names[row] for row in kept],
            images=pictures,
            skipped=skipped,
            source=folder,
            place=place,
            fresh=True,
        )


def _files(folder: Path) -> list[Path]:
    """Picture files below ``folder``, in the order of their names."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        pictures = [name for name in names if Path(name).suffix.lower() in SUFFIXES]
        found += [Path(where, name) for name in pictures if not name.startswith(".")]
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _others(folder: Path) -> str:
    """Kinds of the files in a folder without pictures."""
    names = (file.name for file in folder.rglob("*") if file.is_file())
    kinds = Counter(Path(name).suffix.lower() for name in names if not name.startswith("."))
    kinds.pop("", None)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
    return f"It has other files ({listed}). " if listed else ""


def _report(
    skipped: tuple[Skipped, ...], count: int, path: str | os.PathLike, skip_broken: bool
) -> None:
    """One line about files that could not be read; an error if they may not be left out."""
    some = "; ".join(f"{file.name} ({file.reason})" for file in skipped[:3])
    listed = some + ("; ..." if len(skipped) > 3 else "")
    checks.expect(
        skip_broken and len(skipped) < count,
        "path",
        "pictures that can be read",
        f"{len(skipped)} broken file{'s' * (len(skipped) > 1)} in '{path}': {listed}",
        "Replace or remove them.",
    )
    warnings.warn(
        f"{len(skipped)} of {count} files in '{path}' could not be read and were skipped: {listed}."
        " The dataset's `skipped` names them all.",
        stacklevel=3,
    )
