"""The small decoder, against loops in NumPy, and the weights of digits that come with gloam."""

import hashlib
import itertools
import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from gloam_lab import Decoder
from gloam_lab.decoder import DIGITS_FILE
from tests.helpers import assert_same_bits, refused, small_decoder

compiled = eqx.filter_jit(lambda decoder, w: decoder.images(w))

# Of the committed weights: the file, and 2 x 4 x 4 pixels of two images with the means of both.
DIGEST = "eb3a0839e3015a73b0e9baa29282f569adb67d18c3fd3c71fcb1fc42c06a6f70"
RECORDED = [
    [
        [-0.833716, -0.475519, -0.197992, -0.719626],
        [-0.925933, -0.438871, -0.295283, -0.700678],
        [-0.761184, -0.388003, -0.445550, -0.822165],
        [-0.837738, -0.368184, -0.429772, -0.921484],
    ],
    [
        [-1.000000, -0.970259, 0.901041, -0.989282],
        [-0.999996, 0.647216, 0.535223, -0.012927],
        [-0.981752, 0.873358, -0.988479, -0.847313],
        [-0.999991, -0.345956, 0.255708, -0.996879],
    ],
]
RECORDED_MEANS = [-0.736622, -0.619041]


def doubled(maps, weight, bias):
    """A convolution by loops, its outputs laid out as two by two pixels."""
    rows, columns, _ = maps.shape
    padded = np.pad(maps, ((1, 1), (1, 1), (0, 0)))
    found = np.zeros((2 * rows, 2 * columns, weight.shape[3] // 4))
    for row, column in itertools.product(range(rows), range(columns)):
        window = padded[row : row + 3, column : column + 3]
        numbers = np.tensordot(window, weight, 3) + bias
        block = numbers.reshape(2, 2, -1)
        found[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = block
    return found


def by_loops(decoder, latent):
    t = {name: np.asarray(value, np.float64) for name, value in decoder.tensors.items()}
    hidden = np.maximum(latent @ t["hidden.weight"] + t["hidden.bias"], 0)
    maps = np.maximum(hidden @ t["maps.weight"] + t["maps.bias"], 0)
    side = decoder.image_shape[1] // 4
    maps = maps.reshape(side, side, -1)
    middle = np.maximum(doubled(maps, t["middle.weight"], t["middle.bias"]), 0)
    logits = doubled(middle, t["pixels.weight"], t["pixels.bias"])[..., 0]
    return 2 / (1 + np.exp(-logits)) - 1


@pytest.mark.parametrize("decoder", [small_decoder(), Decoder.digits()], ids=["small", "digits"])
def test_images_are_those_of_loops(decoder):
    w = np.random.default_rng(1).normal(0, 1, (3, decoder.w_dim)).astype(np.float32)
    images = compiled(decoder, w)
    assert images.shape == (3, *decoder.image_shape)
    expected = np.stack([by_loops(decoder, latent) for latent in w])
    np.testing.assert_allclose(images[:, 0], expected, rtol=0, atol=1e-5)


def test_latents_are_the_normal_numbers_themselves():
    decoder = small_decoder()
    assert (decoder.z_dim, decoder.w_dim, decoder.num_ws) == (3, 3, 1)
    z = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(decoder.map(z), z)
    np.testing.assert_array_equal(decoder.map(z, 0.5), z / 2)
    np.testing.assert_array_equal(decoder.w_avg, np.zeros(3))


def test_a_decoder_is_saved_in_half_precision(tmp_path):
    decoder = small_decoder()
    decoder.save(tmp_path / "d.safetensors", {"from": "a test"})
    again = Decoder.load(tmp_path / "d.safetensors")
    for name, tensor in decoder.tensors.items():
        half = np.asarray(tensor, np.float16).astype(np.float32)
        np.testing.assert_array_equal(again.tensors[name], half)
    again.save(tmp_path / "e.safetensors")
    assert_same_bits(Decoder.load(tmp_path / "e.safetensors"), again)


# The weights of digits


def test_the_weights_of_digits_are_those_that_were_committed():
    content = DIGITS_FILE.read_bytes()
    assert len(content) < 1_000_000
    assert hashlib.sha256(content).hexdigest() == DIGEST
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    assert "CC BY-SA 3.0" in metadata["data"]
    told = DIGITS_FILE.with_suffix(".txt").read_text()
    for text in (metadata["script"], f"seed {metadata['seed']}", "CC BY-SA 3.0"):
        assert text in told


def test_the_digits_of_two_latents_are_as_recorded():
    decoder = Decoder.digits()
    assert decoder.image_shape == (1, 28, 28)
    w = jnp.stack([jnp.zeros(16), jnp.linspace(-2, 2, 16)])
    images = np.asarray(compiled(decoder, w))[:, 0]
    np.testing.assert_allclose(images[:, 6:22:5, 6:22:5], RECORDED, rtol=0, atol=1e-5)
    np.testing.assert_allclose(images.mean(axis=(1, 2)), RECORDED_MEANS, rtol=0, atol=1e-5)


# Wrong tensors


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def shaped(name, *shape):
    return lambda tensors: tensors | {name: np.ones(shape)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: 3, "tensors: expected Mapping, got int"),
        (without("maps.weight"), "tensors: maps.weight: expected a tensor of 2 axes"),
        (without("pixels.bias"), "tensors: expected 8 tensors, got a file without 1 of them"),
        (shaped("extra", 1), "tensors: expected hidden.weight, hidden.bias"),
        (shaped("hidden.weight", 3), "tensors: hidden.weight: expected a tensor of 2 axes"),
        (shaped("middle.weight", 3, 3, 0, 8), "tensors: middle.weight: expected a tensor of 4"),
        (shaped("hidden.weight", 3, 6), "tensors: maps.weight: expected shape (6, 12)"),
        (shaped("maps.weight", 5, 13), "tensors: maps.weight: expected shape (5, 12)"),
        (shaped("maps.weight", 5, 2), "tensors: maps.weight: expected shape (5, 0)"),
        (shaped("middle.weight", 3, 3, 3, 9), "tensors: middle.weight: expected shape"),
        (shaped("middle.weight", 5, 5, 3, 8), "tensors: middle.weight: expected shape"),
        (shaped("pixels.weight", 3, 3, 2, 8), "tensors: pixels.weight: expected shape (3, 3, 2, 4"),
        (shaped("maps.bias", 11), "tensors: maps.bias: expected shape (12,)"),
        (lambda t: t | {"maps.bias": np.full(12, np.nan)}, "tensors: maps.bias: expected finite"),
        (lambda t: t | {"maps.bias": ["a"] * 12}, "tensors: maps.bias: expected numbers"),
    ],
)
def test_wrong_tensors_are_refused(change, message):
    with refused(message):
        Decoder(change(dict(small_decoder().tensors)))


def test_a_file_of_another_model_is_refused(tmp_path):
    from gloam_lab.generator import write_tensors

    write_tensors(tmp_path / "other.safetensors", {"weight": np.ones(3)}, {})
    with refused("tensors: hidden.weight: expected a tensor of 2 axes, got shape None"):
        Decoder.load(tmp_path / "other.safetensors")
