"""Networks for image measures: against slow loops and PyTorch, fresh weights, what is trained."""

import json
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.discounts import MLP, DiscountModel
from gloam.discounts.convolution import CNN
from gloam.discounts.from_torch import (
    Convolution,
    Flatten,
    Gelu,
    Linear,
    Rectifier,
    Stack,
    Tanh,
    Unflatten,
    from_torch,
)
from gloam.discounts.frozen import Frozen
from gloam.drivers import codec
from gloam.records import Batch

# Sums of up to some thousand products of numbers near 1, in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
IMAGE_SHAPES = [(4, 4), (8, 8), (28, 28), (5, 7, 3), (4, 9, 2), (1, 6)]


@pytest.fixture(scope="session")
def torch():
    reason = "PyTorch is not installed (pip install torch): the NumPy oracles stand in for it"
    return pytest.importorskip("torch", reason=reason)


def uniform(shape, seed):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def over_rows(network, rows):
    return np.asarray(eqx.filter_jit(jax.vmap(network))(jnp.asarray(rows)))


def leaves(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def assert_same_bits(tree, other):
    for got, want in zip(leaves(tree), leaves(other), strict=True):
        np.testing.assert_array_equal(got, want)


# Oracles


def slow_convolution(image, weight, bias, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    """One image ``(in, height, width)``; ``weight`` is ``(out, in / groups, rows, columns)``."""
    out, each, *kernel = weight.shape
    image = np.pad(image.astype(np.float64), ((0, 0), *((size, size) for size in padding)))
    groups = len(image) // each
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    ends = [image.shape[axis + 1] - reach[axis] for axis in (0, 1)]
    result = np.empty((out, ends[0] // stride[0] + 1, ends[1] // stride[1] + 1))
    for o, y, x in np.ndindex(*result.shape):
        first = o // (out // groups) * each
        window = image[
            first : first + each,
            y * stride[0] : y * stride[0] + reach[0] : dilation[0],
            x * stride[1] : x * stride[1] + reach[1] : dilation[1],
        ]
        result[o, y, x] = np.sum(window * weight[o]) + bias[o]
    return result


def slow_cnn(network, row):
    """What the docstring of `CNN` says, channels first and in float64."""
    *kernels, hidden, last = (np.asarray(weight, np.float64) for weight in network.weights)
    biases = [np.asarray(bias, np.float64) for bias in network.biases]
    x = row.reshape(network.shape).transpose(2, 0, 1)
    for kernel, bias in zip(kernels, biases, strict=False):
        weight = kernel.transpose(3, 2, 0, 1)
        x = np.maximum(slow_convolution(x, weight, bias, stride=(2, 2), padding=(1, 1)), 0)
    x = np.maximum(x.transpose(1, 2, 0).ravel() @ hidden + biases[-2], 0)
    return (x @ last + biases[-1])[0]


# The convolutional network


@pytest.mark.parametrize("shape", IMAGE_SHAPES, ids=str)
def test_the_cnn_is_its_convolutions_done_slowly(shape):
    network = CNN(shape, channels=(3, 5), hidden=7, key=jax.random.key(1))
    rows = uniform((3, math.prod(shape)), seed=2)
    got = over_rows(network, rows)
    assert got.shape == (3,)
    np.testing.assert_allclose(got, [slow_cnn(network, row) for row in rows], **CLOSE)


def test_the_cnn_is_that_of_pytorch(torch):
    network = CNN((10, 7, 3), channels=(4, 6), hidden=5, key=jax.random.key(1))
    rows = uniform((8, 210), seed=2)
    x = torch.from_numpy(rows.reshape(8, 10, 7, 3).transpose(0, 3, 1, 2).copy())
    tensors = [
        [torch.from_numpy(np.array(leaf)) for leaf in layer]
        for layer in zip(network.weights, network.biases, strict=True)
    ]
    for weight, bias in tensors[:2]:
        kernel = weight.permute(3, 2, 0, 1)
        x = torch.nn.functional.conv2d(x, kernel, bias, stride=2, padding=1).relu()
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = (x @ tensors[2][0] + tensors[2][1]).relu() @ tensors[3][0] + tensors[3][1]
    np.testing.assert_allclose(over_rows(network, rows), x[:, 0].numpy(), **CLOSE)


def test_the_layers_have_the_sizes_asked_for():
    network = CNN((28, 20), channels=(16, 32, 8), hidden=64)
    shapes = [(3, 3, 1, 16), (3, 3, 16, 32), (3, 3, 32, 8), (4 * 3 * 8, 64), (64, 1)]
    assert [weight.shape for weight in network.weights] == shapes
    assert [bias.shape for bias in network.biases] == [(16,), (32,), (8,), (64,), (1,)]


def test_weights_start_uniform_within_one_over_root_fan_in():
    network = CNN((12, 12, 3), channels=(64, 32), hidden=100, key=jax.random.key(4))
    fan_ins = (27, 9 * 64, 9 * 32, 100)
    for fan_in, weight, bias in zip(fan_ins, network.weights, network.biases, strict=True):
        scaled = np.ravel(weight) * math.sqrt(fan_in)
        assert max(np.abs(scaled).max(), np.abs(bias).max() * math.sqrt(fan_in)) <= 1 + 1e-6
        # The mean square of n uniform numbers is 1/3 with a standard deviation of 0.3/sqrt(n).
        assert abs(np.mean(np.square(scaled)) - 1 / 3) < 4 * 0.3 / math.sqrt(len(scaled))
    every = np.concatenate([np.ravel(leaf) for leaf in leaves(network)])
    assert len(np.unique(np.abs(every))) > 0.99 * len(every)


@pytest.mark.parametrize(
    "network",
    [CNN((5, 7, 3), channels=(3, 5), hidden=7), Frozen(jnp.tanh, measures=3)],
    ids=["CNN", "Frozen"],
)
def test_a_key_gives_other_weights_of_the_same_shapes_and_always_the_same(network):
    first, second, again = (
        network.reinitialized(key=jax.random.key(seed)) for seed in (0, 1, 0)
    )
    assert jax.tree.structure(first) == jax.tree.structure(network)
    assert_same_bits(first, again)
    for leaf, other, old in zip(leaves(first), leaves(second), leaves(network), strict=True):
        assert leaf.shape == other.shape == old.shape
        assert not np.isin(leaf, other).any()
    assert_same_bits(CNN((4, 4)), CNN((4, 4)))


# Training


def stripes(number, seed, *, standing):
    """Images of 8x8 pixels in about [0, 1]: lines that stand or lie, anywhere, with noise."""
    rng = np.random.default_rng(seed)
    phases = rng.uniform(0, 2 * np.pi, (number, 1))
    lines = 0.5 + 0.5 * np.sin(np.pi / 2 * np.arange(8) + phases)
    images = np.repeat(lines[:, None, :], 8, axis=1)
    images = images if standing else images.transpose(0, 2, 1)
    images = images + rng.normal(0, 0.1, images.shape)
    return jnp.asarray(images.reshape(number, 64), jnp.float32)


def model_of(network):
    lower, upper = jnp.zeros(64), jnp.ones(64)
    return DiscountModel(lower, upper, network=network, alpha=1.0, cutoff=0.0)


@eqx.filter_jit
def initial(model, centers, real, key):
    return model.init(centers, real, key=key)


@eqx.filter_jit
def trained(model, state, key):
    """The state after one fit: standing lines have objective 1, lying ones are empty cells."""
    standing, lying = stripes(100, 1, standing=True), stripes(100, 2, standing=False)
    whole, cells = jnp.ones(100, bool), jnp.zeros(100, jnp.int32)
    batch = Batch(jnp.zeros((100, 1)), jnp.ones(100), standing, cells, whole, {})
    return model.train(state, batch, model.score(state, batch), lying, whole, key=key)[0]


@eqx.filter_jit
def error_elsewhere(model, state):
    """Mean squared error on images that were not trained on."""
    standing, lying = stripes(100, 3, standing=True), stripes(100, 4, standing=False)
    discounts = model.discount(state, jnp.concatenate([standing, lying]))
    return jnp.mean(jnp.square(discounts - jnp.repeat(jnp.array([1.0, 0.0]), 100)))


def fresh(model, seed):
    """A state with the weights of a seed: without a real centre nothing is fitted."""
    nothing = jnp.zeros(8, bool)
    return initial(model, jnp.zeros((8, 64)), nothing, jax.random.key(seed))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cnn_learns_which_way_lines_run(seed):
    model = model_of(CNN((8, 8), channels=(8, 16), hidden=32))
    state = fresh(model, seed)
    before = error_elsewhere(model, state)
    for fit in range(4):
        state = trained(model, state, jax.random.key(fit))
    after = error_elsewhere(model, state)
    print("ERR", seed, before, after)
