"""One picture file as uint8 pixels of a given size, whatever its own size and mode."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import UInt8

from gloam import files

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
