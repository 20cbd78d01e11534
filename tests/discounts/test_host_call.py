"""NumPy in compiled programs: what it gives, in loops and batches, and that nothing hangs."""

import os
import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.discounts import DiscountModel
from gloam.discounts.networks.host_call import by_copies, host_call, in_place
from gloam.discounts.networks.mlp import outputs

NUMBER = jax.ShapeDtypeStruct((), jnp.float32)


def sums(x, y, call=host_call):
    """Sum of all numbers, and the larger of each pair."""
    shapes = (NUMBER, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(lambda a, b: [np.sum(a) + np.sum(b), np.maximum(a, b)], shapes, x, y)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("call", [host_call, by_copies, in_place])
def test_it_is_the_function(call, compiled):
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    chosen = partial(sums, call=call)
    total, larger = (jax.jit(chosen) if compiled else chosen)(x, y)
    np.testing.assert_allclose(total, x.sum() + y.sum(), rtol=1e-6)
    np.testing.assert_array_equal(larger, np.maximum(x, y))


def test_in_a_loop_each_call_sees_the_last_ones_result():
    def body(_, x):
        return host_call(lambda a: [2 * a + 1], [jax.ShapeDtypeStruct((2,), jnp.float32)], x)[0]

    got = jax.jit(lambda x: jax.lax.fori_loop(0, 5, body, x))(jnp.array([0.0, 1.0]))
    assert got.tolist() == [31.0, 63.0]


def test_a_batch_is_a_call_for_each():
    x, y = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    for got, want in zip(jax.vmap(sums)(x, y), zip(*map(sums, x, y), strict=True), strict=True):
        np.testing.assert_array_equal(got, np.stack(want))


def test_an_error_in_the_function_comes_out():
    def fail(a):
        raise ValueError("no such luck")

    with pytest.raises(Exception, match="no such luck"):
        jax.block_until_ready(jax.jit(lambda x: host_call(fail, [NUMBER], x))(jnp.zeros(3)))


ONE_CORE = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import jax, jax.numpy as jnp, numpy as np
from gloam.discounts.networks.host_call import host_call
shape = jax.ShapeDtypeStruct((1000, 784), jnp.float32)
body = lambda _, x: host_call(lambda a: [a + 1], [shape], x)[0]
loop = jax.jit(lambda x: jax.lax.fori_loop(0, 20, body, x))
for _ in range(3):
    x = loop(jnp.zeros(shape.shape))
print(float(x.min()), float(x.max()))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot choose a core here")
def test_large_arrays_do_not_hang_on_one_core():
    # With jax.pure_callback this hangs at the first call.
    found = subprocess.run(
        [sys.executable, "-c", ONE_CORE], capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.split() == ["20.0", "20.0"]


# Networks that want whole batches


class Whole(eqx.Module):
    """Refuses a single row."""

    weight: jax.Array

    def __call__(self, row):
        return self.of_batch(row[None])[0]

    def of_batch(self, rows):
        assert rows.ndim == 3
        return jnp.einsum("nij,ij->n", rows, self.weight)


def test_a_network_may_take_batches():
    weight = jnp.arange(6.0).reshape(2, 3)
    rows = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (7, 6)), jnp.float32)
    want = (2 * rows - 1) @ weight.ravel()
    np.testing.assert_allclose(
        outputs(Whole(weight), (2 * rows - 1).reshape(7, 2, 3)), want, rtol=1e-5, atol=1e-5
    )
    model = DiscountModel(jnp.zeros(6), jnp.ones(6), network=Whole(weight), shape=(2, 3))
    state = model.init(rows, jnp.zeros(7, bool), key=jax.random.key(0))
    np.testing.assert_allclose(model.discount(state, rows), want, rtol=1e-5, atol=1e-5)


def test_a_shape_must_have_as_many_numbers_as_there_are_measures():
    with pytest.raises(
        ValueError, match=r"shape: expected a shape of the 6 measures, got \(2, 4\)"
    ):
        DiscountModel(jnp.zeros(6), jnp.ones(6), shape=(2, 4))


def test_pytorch_is_imported_by_nobody_but_its_users():
    code = "import gloam, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
