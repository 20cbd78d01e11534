"""Datasets from folders of images of any size, mode and file format."""

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from gloam._tools import checks, files
from gloam._tools.progress import work_bar
from gloam._tools.warn import warn
from gloam.datasets import rows
from gloam.datasets.dataset import Dataset, Skipped
from gloam.datasets.embedding import embed_all
from gloam.datasets.readers import naming

_KINDS = "avif bmp dib gif ico jfif jp2 jpeg jpg pbm pgm png pnm ppm tga tif tiff webp"
SUFFIXES = frozenset(f".{kind}" for kind in _KINDS.split())
"""Suffixes of image files."""


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
    """Read a dataset from all images in a folder and its subfolders.

    Files that cannot be read are skipped with a warning and listed in ``skipped``. Hidden files
    and files without the suffix of an image are ignored.

    Args:
        path: The folder. Images in subfolders have the subfolder's name as their label.
        size: Height and width that all images are resized to.
        mode: ``"L"`` for gray values, ``"RGB"`` for colors. Values are scaled to [0, 1].
        crop: Whether images with another aspect ratio are cropped to their center, or distorted.
        background: Gray value, 0 to 255, behind transparent images.
        embed, batch, cache: As in `Dataset.embedded`. If given, the items are the embeddings.
        max_pixels: Images with more pixels are skipped, because a small file can declare an image
            that fills the memory. The default is Pillow's limit.
        max_items: Maximum number of images. Of a larger folder, a fixed random sample is read.
            Default: all.
        skip_broken: Whether files that cannot be read are skipped, or are an error.
        progress: Whether to show progress bars.
    """
    folder = checks.path("path", path)
    fix = "Read a file by from_file." if folder.is_file() else "Check the path."
    checks.expect(folder.is_dir(), "path", "an existing folder", f"'{path}'", fix)
    checks.expect(np.shape(size) == (2,), "size", "(height, width)", repr(size))
    height, width = (checks.integer("size", side, minimum=1) for side in size)
    checks.expect(mode in ("L", "RGB"), "mode", "'L' (gray) or 'RGB'", repr(mode))
    gray = checks.integer("background", background, minimum=0)
    checks.expect(gray <= 255, "background", "a gray value from 0 to 255", background)
    max_pixels = checks.integer("max_pixels", max_pixels, minimum=1)
    checks.expect(embed is None or callable(embed), "embed", "a function of a batch", repr(embed))

    paths = _image_files(folder)
    if max_items is not None and len(paths) > checks.integer("max_items", max_items, minimum=2):
        drawn = np.random.default_rng(0).permutation(len(paths))[:max_items]
        paths = [paths[number] for number in sorted(drawn.tolist())]
    names = [file.relative_to(folder).as_posix() for file in paths]
    shape = (len(paths), height, width, *([3] if mode == "RGB" else []))
    what, fix = f"{len(paths):,} images", "Use smaller images, or fewer: max_items=..."
    checks.fits_memory("size", math.prod(shape), what, fix)
    images = np.empty(shape, np.uint8)

    def read(number: int) -> Skipped | None:
        try:
            images[number] = read_image(
                paths[number], (height, width), mode, crop=crop, background=gray
            )
        except Exception as error:  # decoders raise errors of many kinds
            # Pillow's messages contain the repr of the open file.
            reason = re.sub(r" *<_io\.[^>]*>", "", str(error))
            reason = reason.replace(str(paths[number]), names[number])
            return Skipped(names[number], reason or type(error).__name__)
        return None

    with _pixel_limit(max_pixels):
        failures = _in_threads(read, len(paths), progress)
    skipped = tuple(failure for failure in failures if failure is not None)
    if skipped:
        _report(skipped, len(paths), path, skip_broken)
        good = [number for number, failure in enumerate(failures) if failure is None]
        images, names = images[good], [names[number] for number in good]

    labels = [os.path.dirname(name) for name in names]
    labels = labels if any(labels) else None
    options: Any = {"skipped": skipped, "source": folder, "fresh": True}
    if embed is None:
        with naming(folder):
            return Dataset(images, (), labels, names, **options)
    # Duplicates are merged before they are embedded.
    kept, place = rows.first_of_equal(images[block] for block in rows.blocks(images))
    images = images[kept] if len(kept) < len(images) else images
    names = [names[row] for row in kept]
    labels = None if labels is None else [labels[row] for row in kept]
    vectors = embed_all(embed, images, batch=batch, cache=cache, source=folder, progress=progress)
    with naming(folder):
        return Dataset(vectors, (), labels, names, images, place=place, **options)


def read_image(
    path: str | os.PathLike,
    size: tuple[int, int],
    mode: Literal["L", "RGB"],
    *,
    crop: bool = True,
    background: int = 255,
) -> UInt8[np.ndarray, "height width *channels"]:
    """Read the first frame of an image file; for the arguments see `from_folder`."""
    height, width = size
    # A pipe or a device would block or never end.
    with files.open_regular(path) as file, Image.open(file) as opened:
        # Large JPEG files are decoded at a reduced size, which is much faster. The longer side is
        # used for both, because the image may still be rotated.
        opened.draft(None, (2 * max(size), 2 * max(size)))
        try:
            rotated = ImageOps.exif_transpose(opened)
        except Exception:  # damaged EXIF data
            rotated = opened
        image = _opaque(rotated, background).convert(mode)
    resampling = Image.Resampling.LANCZOS
    if crop:
        return np.asarray(ImageOps.fit(image, (width, height), resampling))
    return np.asarray(image.resize((width, height), resampling))


def _opaque(image: Image.Image, background: int) -> Image.Image:
    """Return an 8-bit image without palette and transparency."""
    if image.mode[0] in "IF":
        return _eight_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        behind = Image.new("RGBA", image.size, (background, background, background, 255))
        return Image.alpha_composite(behind, image).convert("RGB")
    return image if image.mode == "L" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit, 32-bit or float gray values to 0 to 255."""
    values = np.asarray(image).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are NaN or infinite")
    low, high = values.min(), values.max()
    usual = 1.0 if image.mode == "F" else 65535.0
    if low >= 0 and high <= usual:
        low, high = 0.0, usual
    # Values outside the usual range are scaled by their extremes.
    scaled = (values - low) * (255 / (high - low if high > low else 1.0))
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


@contextmanager
def _pixel_limit(max_pixels: int) -> Iterator[None]:
    """Make Pillow reject larger images, and silence its warnings about damaged files."""
    usual = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        Image.MAX_IMAGE_PIXELS = max_pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = usual


def _in_threads(
    read: Callable[[int], Skipped | None], count: int, progress: bool
) -> list[Skipped | None]:
    """Call ``read`` for each number below ``count`` and return the results in order."""
    results = []
    with (
        work_bar("reading images", count, show=progress) as advance,
        ThreadPoolExecutor() as pool,
    ):
        try:
            for result in pool.map(read, range(count)):
                results.append(result)
                advance(1)
        except BaseException:  # Ctrl-C does not wait for the other files
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _image_files(folder: Path) -> list[Path]:
    """Return the image files below ``folder``, sorted by name; it is an error if there are none."""
    images, other_suffixes = [], Counter()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            suffix = Path(name).suffix.lower()
            if name.startswith("."):
                continue
            if suffix in SUFFIXES:
                images.append(Path(where, name))
            elif suffix:
                other_suffixes[suffix] += 1
    kinds = ", ".join(f"{count} {suffix}" for suffix, count in other_suffixes.most_common(3))
    fix = f"It has other files ({kinds}). " if kinds else ""
    fix += f"Images are files that end with {' '.join(sorted(SUFFIXES))}."
    got = f"'{folder}', which has none"
    checks.expect(len(images) > 0, "path", "a folder with images", got, fix)
    return sorted(images, key=lambda file: file.relative_to(folder).as_posix())


def _report(
    skipped: Sequence[Skipped], count: int, path: str | os.PathLike, skip_broken: bool
) -> None:
    """Warn about files that could not be read; raise if they may not be skipped."""
    listed = checks.printable("; ".join(f"{file.name} ({file.reason})" for file in skipped[:3]))
    listed += "; ..." if len(skipped) > 3 else ""
    checks.expect(
        skip_broken and len(skipped) < count,
        "path",
        "images that can be read",
        f"{len(skipped)} broken file{'s' * (len(skipped) > 1)} in '{path}': {listed}",
        "Replace or remove them.",
    )
    warn(
        f"{len(skipped)} of {count} files in '{checks.printable(path)}' could not be read and were "
        f"skipped: {listed}. The dataset lists them all in `skipped`.",
    )
