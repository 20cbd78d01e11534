"""Resampling against zeros inserted and filters applied one by one; filters against SciPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal, special

from gloam_lab.latent_illumination import stylegan3_layers as layers
from gloam_lab.latent_illumination.stylegan3_settings import lowpass, radial_lowpass
from tests.lab.latent_illumination import reference

DESIGNS = [(12, 2.0, 12.0, 32), (24, 4.0, 8.0, 64), (5, 1.0, 3.0, 16), (12, 2.0, 0.5, 32)]


@pytest.mark.parametrize(("taps", "cutoff", "width", "rate"), DESIGNS)
def test_filters_are_windowed_sincs_and_jincs(taps, cutoff, width, rate):
    window = signal.windows.kaiser(
        taps, signal.kaiser_beta(signal.kaiser_atten(taps, width / (rate / 2)))
    )
    positions = (np.arange(taps) - (taps - 1) / 2) / rate
    expected = np.sinc(2 * cutoff * positions) * window
    found = lowpass(taps, cutoff, width, rate)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=0, atol=1e-7)

    expected = np.zeros((taps, taps))
    for i, j in np.ndindex(taps, taps):
        r = np.hypot(positions[i], positions[j])
        jinc = special.j1(2 * np.pi * cutoff * r) / (np.pi * r) if r else cutoff
        expected[i, j] = jinc * window[i] * window[j]
    found = radial_lowpass(taps, cutoff, width, rate)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=0, atol=1e-7)


def picture(height, width, channels=3):
    images = np.random.default_rng(0).standard_normal((2, channels, height, width))
    return images, jnp.asarray(images.transpose(0, 2, 3, 1), jnp.float32)


def both_axes(function, images, taps, **options):
    """Results along rows and along columns, by one program."""
    apply = jax.jit(lambda x, taps: [function(x, taps, axis=axis, **options) for axis in (1, 2)])
    return apply(images, taps.astype(np.float32))


def naive_axis(images, taps, axis, up=1, down=1, padding=(0, 0)):
    """``upfirdn`` of one axis: the other one is turned into channels."""
    n, c, h, w = images.shape
    if axis == 1:
        rows = images.transpose(0, 1, 3, 2).reshape(n, c * w, h)
    else:
        rows = images.reshape(n, c * h, w)
    before, after = padding
    long = np.zeros((n, rows.shape[1], rows.shape[2] * up))
    long[:, :, ::up] = rows
    long = np.pad(long, ((0, 0), (0, 0), (max(before, 0), max(after, 0))))
    long = long[:, :, max(-before, 0) : long.shape[2] - max(-after, 0)]
    result = np.stack([[np.convolve(r, taps, "valid")[::down] for r in image] for image in long])
    if axis == 1:
        return result.reshape(n, c, w, -1).transpose(0, 3, 2, 1)
    return result.reshape(n, c, h, -1).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("factor", "taps", "padding"),
    [
        (2, 12, (9, 8)),
        (4, 24, (-6, -9)),
        (1, 1, (0, 0)),
        (2, 1, (0, 0)),
        (3, 7, (5, 0)),
        (1, 5, (2, 2)),
        (2, 3, (0, 7)),
    ],
)
def test_upsampling_is_zeros_inserted_and_filtered(factor, taps, padding):
    images, ours = picture(13, 11)
    values = np.random.default_rng(1).standard_normal(taps)
    found = both_axes(layers.upsample, ours, values, factor=factor, padding=padding)
    for axis, result in zip((1, 2), found, strict=True):
        expected = naive_axis(images, factor * values, axis, up=factor, padding=padding)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("factor", "taps"), [(2, 12), (2, 1), (1, 1), (4, 5), (3, 8), (1, 13)])
def test_downsampling_is_filtered_and_every_nth_kept(factor, taps):
    images, ours = picture(13, 16)
    values = np.random.default_rng(1).standard_normal(taps)
    found = both_axes(layers.downsample, ours, values, factor=factor)
    for axis, result in zip((1, 2), found, strict=True):
        expected = naive_axis(images, values, axis, down=factor)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "up", "padding", "clamp"),
    [
        ((12,), 2, (9, 8), None),
        ((12,), 4, (-6, -9), 0.3),
        ((6, 6), 2, (-5, -6), 0.3),
        ((6, 6), 4, (-6, -9), None),
    ],
    ids=str,
)
def test_a_filtered_leaky_relu_is_its_three_steps(shape, up, padding, clamp):
    images, ours = picture(20, 20)
    rng = np.random.default_rng(2)
    up_taps, down_taps = rng.standard_normal(6 * up), rng.standard_normal(shape)
    taps = reference.two_axes(up_taps) * up**2
    large = reference.upfirdn(images, taps, up=up, padding=padding)
    large = 1.4 * np.where(large > 0, large, 0.2 * large)
    large = large if clamp is None else large.clip(-clamp, clamp)
    expected = reference.upfirdn(large, reference.two_axes(down_taps), down=2)
    options = {"up": up, "down": 2, "padding": padding, "clamp": clamp}
    apply = jax.jit(partial(layers.filtered_leaky_relu, gain=1.4, slope=0.2, **options))
    found = apply(ours, up_taps.astype(np.float32), down_taps.astype(np.float32))
    found, scale = found.transpose(0, 3, 1, 2), np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-5)
