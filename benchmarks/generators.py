"""Time of StyleGAN3 on this machine: one image, and the filtered leaky ReLU in several forms.

    python benchmarks/generators.py [--resolution 256]
    python benchmarks/generators.py --first --resolution 64

With ``--first``, it is the first picture of a new process without a cache of compiled programs.
The forms are alternatives for the resampling of StyleGAN3;
`research/latent-space-illumination.md` has results. CPU seconds are printed as well, because they
depend less on other processes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gloam_lab.latent_illumination import StyleGAN3, StyleGAN3Settings
from gloam_lab.latent_illumination import stylegan3_layers as resampling
from gloam_lab.latent_illumination.stylegan3_settings import lowpass

# Name, channels, size, factor of the upsampling, padding: layers of the 256 x 256 network.
LAYERS = [
    ("L6_84_512", 512, 86, 2, (9, 8)),
    ("L8_148_256", 256, 150, 2, (9, 8)),
    ("L10_276_128", 128, 150, 4, (-6, -9)),
    ("L11_276_91", 91, 278, 2, (9, 8)),
]


def timed(function, *arguments, repeats=5):
    """Return the median milliseconds of wall clock and of CPU."""
    jax.block_until_ready(function(*arguments))
    walls, cpus = [], []
    for _ in range(repeats):
        before, start = os.times(), time.perf_counter()
        jax.block_until_ready(function(*arguments))
        walls.append(time.perf_counter() - start)
        after = os.times()
        cpus.append(after.user + after.system - before.user - before.system)
    return 1000 * statistics.median(walls), 1000 * statistics.median(cpus)


def relu(images):
    return jnp.clip(np.float32(np.sqrt(2)) * jnp.where(images > 0, images, 0.2 * images), -256, 256)


def depthwise(images, up_taps, down_taps, *, up, padding):
    """Insert zeros and convolve channel by channel: the straightforward form."""
    channels = images.shape[3]

    def along(images, taps, axis, stride, dilation, pads):
        shape = [1, 1, 1, channels]
        shape[axis - 1] = len(taps)
        kernel = jnp.broadcast_to(jnp.flip(taps).reshape([*shape[:2], 1, 1]), shape)
        one = [1, 1]
        strides, dilations, padding = one.copy(), one.copy(), [(0, 0), (0, 0)]
        strides[axis - 1], dilations[axis - 1], padding[axis - 1] = stride, dilation, pads
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            strides,
            padding,
            lhs_dilation=dilations,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=channels,
        )

    pads = (padding[0], padding[1] + up - 1)
    for axis in (1, 2):
        images = along(images, up * up_taps, axis, 1, up, pads)
    images = relu(images)
    for axis in (1, 2):
        images = along(images, down_taps, axis, 2, 1, (0, 0))
    return images


def matrices(size, up_taps, down_taps, up, padding):
    """Return upsampling and downsampling of a row as matrices."""
    rows = jnp.eye(size)[None, :, :, None]
    large = resampling.upsample(rows, up_taps, factor=up, axis=1, padding=padding)[0, :, :, 0]
    rows = jnp.eye(large.shape[0])[None, :, :, None]
    small = resampling.downsample(rows, down_taps, factor=2, axis=1)[0, :, :, 0]
    return np.asarray(large), np.asarray(small)


def dense(images, large, small):
    """Multiply by dense matrices."""
    images = jnp.einsum("ij,njwc->niwc", large, images)
    images = relu(jnp.einsum("ij,nhjc->nhic", large, images))
    images = jnp.einsum("ij,njwc->niwc", small, images)
    return jnp.einsum("ij,nhjc->nhic", small, images)


def banded(images, large, small, tile=16):
    """Multiply by the non-zero parts of the matrices, a few rows at a time."""

    def along(images, matrix, axis):
        parts = []
        for start in range(0, len(matrix), tile):
            block = matrix[start : start + tile]
            used = np.flatnonzero(block.any(axis=0))
            low, high = used[0], used[-1] + 1
            piece = jax.lax.slice_in_dim(images, low, high, axis=axis)
            form = "ij,njwc->niwc" if axis == 1 else "ij,nhjc->nhic"
            parts.append(jnp.einsum(form, block[:, low:high], piece))
        return jnp.concatenate(parts, axis=axis)

    images = relu(along(along(images, large, 1), large, 2))
    return along(along(images, small, 1), small, 2)


def merged(images, up_taps, down_taps, *, up, padding):
    """Compute polyphase sums that XLA merges: both downsamplings become one sum of 144 terms."""
    images = resampling.upsample(images, up_taps, factor=up, axis=1, padding=padding)
    images = relu(resampling.upsample(images, up_taps, factor=up, axis=2, padding=padding))
    for axis in (1, 2):
        count = (images.shape[axis] - 12) // 2 + 1
        terms = (
            down_taps[11 - t] * jax.lax.slice_in_dim(images, t, t + 2 * count - 1, 2, axis=axis)
            for t in range(12)
        )
        images = sum(terms)
    return images


def forms():
    """Print a table of the forms."""
    print("| layer | form | ms | CPU ms |\n|---|---|---|---|")
    for name, channels, size, up, padding in LAYERS:
        shape = (1, size, size, channels)
        images = jax.random.normal(jax.random.key(0), shape)
        up_taps = jnp.asarray(lowpass(6 * up, 4.0, 8.0, 16.0 * up))
        down_taps = jnp.asarray(lowpass(12, 5.6, 20.0, 64.0))
        large, small = matrices(size, up_taps, down_taps, up, padding)
        ours = partial(
            resampling.filtered_leaky_relu,
            up=up,
            down=2,
            padding=padding,
            gain=np.sqrt(2),
            slope=0.2,
            clamp=256,
        )
        options = {"up": up, "padding": padding}
        candidates = {
            "zeros inserted, depthwise convolution": (partial(depthwise, **options), True),
            "products with whole matrices": (lambda x, m=(large, small): dense(x, *m), False),
            "products with bands of 16 rows": (lambda x, m=(large, small): banded(x, *m), False),
            "polyphase, sums merged by XLA": (partial(merged, **options), True),
            "polyphase, each sum by itself (gloam)": (ours, True),
        }
        expected = jax.jit(ours)(images, up_taps, down_taps)
        for form, (function, takes_taps) in candidates.items():
            arguments = (images, up_taps, down_taps) if takes_taps else (images,)
            compiled = jax.jit(function)
            np.testing.assert_allclose(compiled(*arguments), expected, rtol=0, atol=1e-4)
            wall, cpu = timed(compiled, *arguments)
            print(f"| {name} | {form} | {wall:.0f} | {cpu:.0f} |", flush=True)


def image(resolution):
    """Print the time of one image of a random network of configuration T."""
    settings = StyleGAN3Settings(img_resolution=resolution, channel_base=64 * resolution)
    network = StyleGAN3.random(settings, key=jax.random.key(0))
    w = network.map(jax.random.normal(jax.random.key(1), (1, 512)))
    wall, cpu = timed(eqx.filter_jit(lambda network, w: network.images(w)), network, w)
    print(f"one image of {resolution} x {resolution}: {wall:.0f} ms, CPU {cpu:.0f} ms")


FIRST = """
import sys, time
import equinox as eqx, jax, jax.numpy as jnp
from gloam_lab.latent_illumination import StyleGAN3
network = StyleGAN3.load(sys.argv[1])
read = time.process_time()
paint = eqx.filter_jit(lambda network, w: network.images(w))
jax.block_until_ready(paint(network, jnp.full((1, network.w_dim), 0.1)))
print(f"{time.process_time():.1f} s of CPU, of which imports and reading {read:.1f} s")
"""


def first(resolution):
    """Print the time to the first image of a network in a file, three times."""
    settings = StyleGAN3Settings(img_resolution=resolution, channel_base=16384)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/network.safetensors"
        StyleGAN3.random(settings, key=jax.random.key(0)).save(file)
        environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        for _ in range(3):
            subprocess.run([sys.executable, "-c", FIRST, file], env=environment, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resolution", type=int, default=256)
    parser.add_argument("--first", action="store_true", help="the first image of a new process")
    options = parser.parse_args()
    if options.first:
        first(options.resolution)
    else:
        image(options.resolution)
        forms()
