"""Kernels for GPUs, interpreted on the CPU, against plain code; and that they lower for CUDA."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam import kernels
from gloam.discounts import MLP
from gloam.discounts.training import Trained, by_kernel, fast_sweep, fit
from gloam.kernels import cholesky as cholesky_
from gloam.kernels import minibatch, nearest
from gloam.kernels.blocks import padded
from gloam.kernels.cholesky import LARGEST, cholesky
from gloam.kernels.minibatch import Adam, fits
from gloam.kernels.nearest import most_similar
from gloam.kernels.products import _parts, in_one_product
from gloam.runs.fused_driver import FusedDriver

ADAM = Adam(1e-3, 0.9, 0.999)
OPTIMIZER = optax.adam(1e-3)


def positive_definite(size, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, size + 5))
    return (rows @ rows.T / size + 0.1 * np.eye(size)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 5, 16, 17, 100, LARGEST])
def test_cholesky(size):
    matrix = positive_definite(size)
    found = np.asarray(cholesky(jnp.asarray(matrix), interpret=True))
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), atol=2e-6)
    assert (np.triu(found, 1) == 0).all()


def test_cholesky_of_many_at_once():
    matrices = jnp.stack([positive_definite(20, seed) for seed in range(3)])
    found = jax.vmap(lambda matrix: cholesky(matrix, interpret=True))(matrices)
    np.testing.assert_allclose(found, np.linalg.cholesky(matrices), atol=2e-6)


def test_cholesky_of_what_is_not_positive_definite_is_no_number():
    matrix = positive_definite(40)
    matrix[20, 20] = -1.0
    diagonal = np.diagonal(cholesky(jnp.asarray(matrix), interpret=True))
    assert np.isfinite(diagonal[:20]).all()
    assert np.isnan(diagonal[20:]).all()


@settings(max_examples=15, deadline=None)
@given(
    cells=st.integers(1, 700),
    measures=st.integers(1, 15),
    batch=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_nearest(cells, measures, batch, seed):
    rng = np.random.default_rng(seed)
    # Small whole numbers: sums are exact, and there are ties.
    rows = rng.integers(-3, 4, (cells, measures + 1)).astype(np.float32)
    points = rng.integers(-3, 4, (batch, measures)).astype(np.float32)
    scores = points @ rows[:, :-1].T + rows[:, -1]
    found = most_similar(jnp.asarray(rows), jnp.asarray(points), interpret=True)
    np.testing.assert_array_equal(found, np.argmax(scores, axis=1))


@settings(max_examples=10, deadline=None)
@given(numbers=st.integers(1, 60), seed=st.integers(0, 99), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_three_products_have_the_digits_of_float32(numbers, seed, scale):
    rng = np.random.default_rng(seed)
    points = (scale * rng.normal(size=(5, numbers))).astype(np.float32)
    rows = rng.normal(size=(7, numbers)).astype(np.float32)
    exact = points.astype(np.float64) @ rows.T.astype(np.float64)
    sizes = np.abs(points) @ np.abs(rows).T
    found = np.asarray(in_one_product(jnp.asarray(points), jnp.asarray(rows)), np.float64)
    assert (np.abs(found - exact) <= 4e-7 * sizes).all()


def test_parts_fit_into_tf32():
    numbers = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    large, small = (np.asarray(part) for part in _parts(jnp.asarray(numbers)))
    np.testing.assert_array_equal(large + small, numbers)
    assert (large.view(np.uint32) % 2**13 == 0).all()
    assert (np.abs(small) <= 2.0**-11 * np.abs(numbers)).all()


def problem(rows, inputs, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, inputs)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(10 * np.sin(3 * x).sum(axis=1) + rng.normal(size=rows), "f4")


def fresh(inputs, hidden=(64, 16), seed=0):
    network = MLP(inputs, hidden, key=jax.random.key(seed))
    return Trained(network, OPTIMIZER.init(network))


def fitted(trained, x, y, real, *, kernel, epochs=2):
    def sweep(*arguments):
        return by_kernel(ADAM, 16, *arguments, interpret=True)

    return fit(
        lambda network, rows: jax.vmap(network)(rows),
        OPTIMIZER,
        trained,
        x,
        y,
        real,
        batch_size=16,
        epochs=epochs,
        cutoff=0.0,
        key=jax.random.key(5),
        sweep=sweep if kernel else None,
    )


@pytest.mark.parametrize(
    ("inputs", "hidden", "masked", "written_out"),
    [
        (2, (64, 16), 0, 64),
        (10, (32, 32), 5, 64),
        (20, (96, 16), 30, 64),
        (3, (32, 16), 44, 64),
        (2, (64, 16), 30, 2),
    ],
)
def test_training_by_kernel_is_training(inputs, hidden, masked, written_out, monkeypatch):
    """Two epochs, the last batch short or, with many masked rows, whole batches without any."""
    monkeypatch.setattr(minibatch, "_WRITTEN_OUT", written_out)
    x, y = problem(44, inputs)
    real = jnp.arange(44) >= masked
    start = fresh(inputs, hidden)
    plain = fitted(start, x, y, real, kernel=False)
    fast = fitted(start, x, y, real, kernel=True)
    assert int(fast[2]) == int(plain[2]) == (2 if masked < 44 else 0)
    compared = zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True)
    for ours, theirs in compared:
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)
    moved = np.abs(fast[0].params.weights[1] - start.params.weights[1]).max()
    assert (moved > 1e-3) == (masked < 44)


def test_seeds_train_apart():
    x, y = problem(32, 4)
    starts = [fresh(4, seed=seed) for seed in range(3)]
    together = jax.vmap(lambda t: by_kernel(ADAM, 16, t, x, y, jnp.int32(32), interpret=True))(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    )
    for seed, start in enumerate(starts):
        alone = by_kernel(ADAM, 16, start, x, y, jnp.int32(32), interpret=True)
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


def small_search(seeds):
    domain = gloam.domains.LinearProjection(measure_dim=5, solution_dim=10)
    archive = gloam.CVTArchive(np.random.default_rng(0).uniform(-50, 50, (40, 5)))
    algorithm = gloam.DMS.paper(
        archive, domain.x0, 0.5, num_emitters=2, batch_size=8, num_empty_points=20
    )
    return FusedDriver(domain, algorithm, list(range(seeds)))


def test_a_whole_search_is_the_same_by_kernels(monkeypatch):
    """All of them in their places, interpreted, beside the plain code."""
    plain = small_search(2)
    plain.start()
    plain.advance(4)
    called = []

    def interpret(module, name):
        original = getattr(module, name)

        def interpreted(*arguments, **options):
            called.append(name)
            return original(*arguments, **(options | {"interpret": True}))

        monkeypatch.setattr(module, name, interpreted)

    interpret(minibatch, "sweep")
    interpret(cholesky_, "cholesky")
    interpret(nearest, "most_similar")
    monkeypatch.setattr(kernels, "usable", lambda: True)
    fast = small_search(2)
    fast.start()
    fast.advance(4)
    assert set(called) == {"sweep", "cholesky", "most_similar"}
    compared = zip(jax.tree.leaves(fast.state), jax.tree.leaves(plain.state), strict=True)
    for ours, theirs in compared:
        if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_whole_search_lowers_for_a_gpu(seeds, monkeypatch):
    """As far as a machine without one can tell: Pallas makes Triton's programs of all kernels."""
    search = small_search(seeds)
    monkeypatch.setattr(kernels, "usable", lambda: True)
    program = search._program
    begin = program.begin.trace(search._arrays, search._keys, search._x0s)
    stretch = program.stretch.trace(search._arrays, begin.out_info, jnp.int32(1))
    text = stretch.lower(lowering_platforms=("cuda",)).as_text()
    for name in ("minibatch", "cholesky", "nearest"):
        assert f'name = "{name}"' in text, name


def test_sizes():
    assert fits(64, 32, 16, 16)
    assert not fits(65, 32, 16, 16)
    assert not fits(10, 32, 24, 16)
    assert [padded(size) for size in (1, 16, 17, 128)] == [16, 16, 32, 128]


@pytest.mark.parametrize(
    ("capability", "setting", "usable"),
    [("9.0", None, True), ("10.0", None, True), ("7.5", None, False), ("9.0", "off", False)],
)
def test_where_kernels_run(capability, setting, usable, monkeypatch):
    monkeypatch.setattr(kernels, "compute_capability", lambda: float(capability))
    if setting is not None:
        monkeypatch.setenv("GLOAM_KERNELS", setting)
    assert kernels.usable() == usable
