"""Kernels for GPUs, interpreted on the CPU, against plain code; and that they lower for CUDA."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gloam
from gloam import step
from gloam._tools import kernels
from gloam._tools.kernels import cholesky, minibatch, nearest, products
from gloam.discounts import MLP
from gloam.discounts.training import Trained, by_kernel, fast_sweep, fit
from tests.helpers import paper_model

pytestmark = pytest.mark.slow  # searches of its own are compiled

ADAM = minibatch.Adam(1e-3, 0.9, 0.999)
OPTIMIZER = optax.adam(1e-3)

factor = jax.jit(partial(cholesky.cholesky, interpret=True))


def positive_definite(size, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, size + 5))
    return (rows @ rows.T / size + 0.1 * np.eye(size)).astype(np.float32)


# Less than a panel of 16 columns, one and a bit, and the most.
@pytest.mark.parametrize("size", [5, 17, cholesky.LARGEST])
def test_cholesky(size):
    matrix = positive_definite(size)
    found = np.asarray(factor(matrix))
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), atol=2e-6)
    assert (np.triu(found, 1) == 0).all()


def test_cholesky_of_many_at_once():
    matrices = jnp.stack([positive_definite(17, seed) for seed in range(3)])
    found = jax.vmap(factor)(matrices)
    np.testing.assert_allclose(found, np.linalg.cholesky(matrices), atol=2e-6)


def test_cholesky_is_nan_if_the_matrix_is_not_positive_definite():
    matrix = positive_definite(cholesky.LARGEST)
    matrix[20, 20] = -1.0
    diagonal = np.diagonal(factor(matrix))
    assert np.isfinite(diagonal[:20]).all()
    assert np.isnan(diagonal[20:]).all()


# One centroid; fewer than a block; several loops with padding at the end.
@pytest.mark.parametrize(("cells", "measures", "batch"), [(1, 1, 1), (60, 15, 16), (700, 3, 40)])
def test_nearest(cells, measures, batch):
    search = jax.jit(partial(nearest.most_similar, interpret=True))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        # Small whole numbers: sums are exact, and there are ties.
        rows = rng.integers(-3, 4, (cells, measures + 1)).astype(np.float32)
        points = rng.integers(-3, 4, (batch, measures)).astype(np.float32)
        scores = points @ rows[:, :-1].T + rows[:, -1]
        np.testing.assert_array_equal(search(rows, points), np.argmax(scores, axis=1))


@pytest.mark.parametrize("numbers", [1, 8, 60])
def test_products_of_parts_have_the_digits_of_float32(numbers):
    product = jax.jit(partial(products.by_parts, precision=None))
    for scale in (1e-3, 1.0, 1e4):
        rng = np.random.default_rng(numbers)
        points = (scale * rng.normal(size=(5, numbers))).astype(np.float32)
        rows = rng.normal(size=(7, numbers)).astype(np.float32)
        exact = points.astype(np.float64) @ rows.T.astype(np.float64)
        sizes = np.abs(points) @ np.abs(rows).T
        found = np.asarray(product(points, rows), np.float64)
        assert (np.abs(found - exact) <= 4e-7 * sizes).all()


def test_parts_fit_into_tf32():
    numbers = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    large, small = (np.asarray(part) for part in products._parts(jnp.asarray(numbers)))
    np.testing.assert_array_equal(large + small, numbers)
    assert (large.view(np.uint32) % 2**13 == 0).all()
    assert (np.abs(small) <= 2.0**-11 * np.abs(numbers)).all()


def test_sizes_of_blocks():
    assert [products.padded(size) for size in (1, 16, 17, 128)] == [16, 16, 32, 128]
    assert minibatch.fits(64, 32, 16, 16)
    assert not minibatch.fits(65, 32, 16, 16)
    assert not minibatch.fits(10, 32, 24, 16)


# Training

ROWS = 44  # the last of three minibatches is short


def problem(inputs):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (ROWS, inputs)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(10 * np.sin(3 * x).sum(axis=1) + rng.normal(size=ROWS), "f4")


def fresh(inputs, hidden, seed=0):
    network = MLP(inputs, hidden, key=jax.random.key(seed))
    return Trained(network, OPTIMIZER.init(network))


@cache
def trainer(kernel, unrolled):
    """Two epochs of training on the rows that are real, compiled."""
    assert unrolled == minibatch._UNROLLED  # part of the program, so of the cache's key
    sweep = partial(by_kernel, ADAM, 16, interpret=True) if kernel else None
    settings = {"batch_size": 16, "epochs": 2, "cutoff": 0.0, "key": jax.random.key(5)}
    forward = jax.vmap(lambda network, row: network(row), in_axes=(None, 0))
    return jax.jit(partial(fit, forward, OPTIMIZER, sweep=sweep, **settings))


@pytest.mark.parametrize(
    ("inputs", "hidden", "unrolled"),
    [
        pytest.param(2, (64, 16), 64, id="unrolled", marks=pytest.mark.slow),
        pytest.param(2, (64, 16), 2, id="loop"),
        pytest.param(10, (32, 32), 64, id="one block", marks=pytest.mark.slow),
    ],
)
def test_training_by_kernel_is_training(inputs, hidden, unrolled, monkeypatch):
    monkeypatch.setattr(minibatch, "_UNROLLED", unrolled)
    x, y = problem(inputs)
    start = fresh(inputs, hidden)
    for masked in (0, 30, ROWS):  # with many masked rows, whole minibatches have none
        real = jnp.arange(ROWS) >= masked
        plain = trainer(False, unrolled)(start, x, y, real)
        fast = trainer(True, unrolled)(start, x, y, real)
        assert int(fast[2]) == int(plain[2]) == (2 if masked < ROWS else 0)
        for ours, theirs in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)
        moved = np.abs(fast[0].params.weights[1] - start.params.weights[1]).max()
        assert (moved > 1e-3) == (masked < ROWS)


@pytest.mark.slow
def test_seeds_train_apart():
    train, (x, y), real = trainer(True, 64), problem(2), jnp.arange(ROWS) >= 30
    starts = [fresh(2, (64, 16), seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    together = jax.vmap(train, in_axes=(0, None, None, None))(stacked, x, y, real)
    for seed, start in enumerate(starts):
        alone = train(start, x, y, real)
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[seed], theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("network", "batch_size", "has_one"),
    [
        (MLP(10), 32, True),
        (MLP(784), 32, False),
        (MLP(10, (100, 128)), 32, False),
        (MLP(10, (128,)), 32, False),
        (MLP(10), 50, False),
        (gloam.discounts.CNN((28, 28)), 32, False),
    ],
)
def test_which_networks_have_a_kernel(network, batch_size, has_one, monkeypatch):
    arguments = {"batch_size": batch_size, "rate": 1e-3, "decay": 0.9, "decay_of_squares": 0.999}
    monkeypatch.setattr(kernels, "usable", lambda: False)
    assert fast_sweep(network, **arguments) is None
    monkeypatch.setattr(kernels, "usable", lambda: True)
    assert (fast_sweep(network, **arguments) is not None) == has_one


# Whole searches


@cache
def small_search():
    """A domain and an algorithm that use all kernels."""
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=6)
    archive = gloam.CVTArchive(np.random.default_rng(0).uniform(-5, 5, (40, 2)))
    emitter = gloam.emitters.CmaEmitters(
        domain.x0, 0.5, num_emitters=2, batch_size=8, restart=gloam.emitters.BasicRestart()
    )
    small = {"num_init_points": 16, "num_empty_points": 16, "max_epochs": 2}
    model = paper_model(
        archive.lower, archive.upper, network=MLP(2, (32, 16)), train_batch_size=16, **small
    )
    return domain, gloam.Algorithm(emitter, archive, model)


def iterations(seeds):
    """Start of a search of several seeds, and one iteration of it, not yet traced."""
    domain, algorithm = small_search()

    def start(key):
        return step.init(algorithm, key)

    def iterate(state):
        proposal = step.ask(algorithm, state)
        objectives, measures = domain(proposal.solutions)
        return step.tell(algorithm, state, proposal, (objectives, measures, {}), None)[0]

    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    return keys, jax.jit(jax.vmap(start)), jax.jit(jax.vmap(iterate))


def searched():
    keys, start, iterate = iterations(2)
    state = start(keys)
    for _ in range(3):
        state = iterate(state)
    return state


@pytest.mark.slow
def test_a_whole_search_is_the_same_by_kernels(monkeypatch):
    """All of them in their places, interpreted, beside the plain code."""
    plain = searched()
    called = set()

    def interpret(module, name):
        original = getattr(module, name)

        def interpreted(*arguments, **options):
            called.add(name)
            return original(*arguments, **(options | {"interpret": True}))

        monkeypatch.setattr(module, name, interpreted)

    interpret(minibatch, "sweep")
    interpret(cholesky, "cholesky")
    interpret(nearest, "most_similar")
    monkeypatch.setattr(kernels, "usable", lambda: True)
    fast = searched()
    assert called == {"sweep", "cholesky", "most_similar"}
    for ours, theirs in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_a_whole_search_lowers_for_a_gpu(monkeypatch):
    """As far as a machine without one can tell: Pallas makes Triton's programs of all kernels."""
    monkeypatch.setattr(kernels, "usable", lambda: True)
    keys, start, iterate = iterations(3)
    traced = iterate.trace(jax.eval_shape(start, keys))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    for name in ("minibatch", "cholesky", "nearest"):
        assert f'name = "{name}"' in text, name
