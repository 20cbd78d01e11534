"""Images as CLIP takes them: bicubic resize of the shorter side, centre crop, normalisation.

OpenAI's pipeline resizes bytes by Pillow. Byte images pass through the same fixed-point arithmetic
here, to the bit; images of floats are resized by the same filter without rounding to bytes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from gloam import checks

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
# Pillow's coefficients have 32 - 8 - 2 bits after the point.
_BITS = 22


class Windows(NamedTuple):
    """For each element of a resized row: where its sources begin, and their weights."""

    starts: Int[np.ndarray, " out"]
    weights: Float[np.ndarray, "out taps"]


def prepared(
    images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width *channels"], size: int
) -> Float[Array, "n 3 size size"]:
    """Images as the vision tower takes them.

    Args:
        images: Floats in [-1, 1] with channels first, as generators make them, or bytes with
            channels last (or none: grey), as datasets hold them. Of any size.
        size: Height and width of the result.
    """
    shape, floats = jnp.shape(images), jnp.issubdtype(images.dtype, jnp.floating)
    if floats:
        fits = len(shape) == 4 and shape[1] == 3
        expected = "floats (n, 3, height, width) or bytes (n, height, width[, 3])"
    else:
        fits = images.dtype == jnp.uint8 and (
            len(shape) == 3 or (len(shape) == 4 and shape[3] == 3)
        )
        expected = "bytes (n, height, width[, 3]) or floats (n, 3, height, width)"
    checks.expect(fits, "images", expected, f"{images.dtype} {shape}")
    if floats:
        images = jnp.moveaxis(images, 1, 3)
        pixels = _resized(0.5 * (jnp.clip(images, -1, 1) + 1), size)
    else:
        images = jnp.asarray(images)
        images = jnp.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images
        pixels = _resized_bytes(images, size).astype(jnp.float32) / 255
    return jnp.moveaxis((pixels - jnp.array(_MEAN)) / jnp.array(_STD), 3, 1)


def bicubic_windows(old: int, new: int, first: int, count: int) -> Windows:
    """Elements ``first`` to ``first + count`` of a row of ``old`` resized to ``new`` elements.

    The filter is Keys' bicubic one with a = -0.5, widened where a row shrinks (antialiasing), and
    cut off at the ends of the row, as in Pillow.
    """
    scale = old / new
    widening = max(scale, 1.0)
    support = 2.0 * widening
    taps = math.ceil(support) * 2 + 1
    starts, weights = np.zeros(count, np.int64), np.zeros((count, taps))
    for row in range(count):
        center = (first + row + 0.5) * scale
        low = max(int(center - support + 0.5), 0)
        high = min(int(center + support + 0.5), old)
        distance = np.abs((np.arange(low, high) - center + 0.5) / widening)
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = ((distance - 5) * distance + 8) * distance - 4
        values = np.where(distance < 1, near, np.where(distance < 2, -0.5 * far, 0.0))
        starts[row] = low
        weights[row, : high - low] = values / values.sum()
    return Windows(starts, weights)


def _axis_windows(shape: tuple[int, int], size: int) -> tuple[Windows, Windows]:
    """Windows of rows and of columns: the shorter side becomes ``size``, the middle is kept."""
    shorter = min(shape)
    windows = []
    for old in shape:
        new = size if old == shorter else int(size * old / shorter)
        windows.append(bicubic_windows(old, new, round((new - size) / 2), size))
    return windows[0], windows[1]


def _resized(
    images: Float[Array, "n height width channels"], size: int
) -> Float[Array, "n size size channels"]:
    height, width = images.shape[1:3]
    rows, columns = _axis_windows((height, width), size)
    exact = jax.lax.Precision.HIGHEST
    wide = jnp.einsum("ij,nhjc->nhic", _matrix(columns, width), images, precision=exact)
    wide = jnp.clip(wide, 0.0, 1.0)  # the filter overshoots at edges; bytes are cut off, too
    both = jnp.einsum("ij,njwc->niwc", _matrix(rows, height), wide, precision=exact)
    return jnp.clip(both, 0.0, 1.0)


def _matrix(windows: Windows, old: int) -> Float[Array, "new old"]:
    matrix = np.zeros((len(windows.starts), old + windows.weights.shape[1]))
    for row, (start, weights) in enumerate(zip(*windows, strict=True)):
        matrix[row, start : start + len(weights)] = weights
    return jnp.asarray(matrix[:, :old], jnp.float32)


def _resized_bytes(
    images: UInt8[Array, "n height width channels"], size: int
) -> Int[Array, "n size size channels"]:
    height, width = images.shape[1:3]
    rows, columns = _axis_windows((height, width), size)
    values = images.astype(jnp.int32)
    for axis, windows in ((2, columns), (1, rows)):  # Pillow's order; each pass ends in bytes
        fixed = np.trunc(windows.weights * 2**_BITS + np.copysign(0.5, windows.weights))
        total = jnp.int32(1 << (_BITS - 1))
        for tap in range(fixed.shape[1]):
            places = np.minimum(windows.starts + tap, values.shape[axis] - 1)
            weights = jnp.asarray(fixed[:, tap], jnp.int32)
            part = jnp.take(values, jnp.asarray(places), axis=axis)
            total = total + part * weights.reshape((-1,) + (1,) * (3 - axis))
        values = jnp.clip(total >> _BITS, 0, 255)
    return values
