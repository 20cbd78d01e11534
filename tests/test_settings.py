"""JAX's settings, seeds, fields and numbers: each is used as meant or refused."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.draws import root_key
from gloam.runs.options import seed_list

BATCH = 6
X0 = np.zeros(5)

_PROGRAM = """
import jax, numpy as np, gloam
from gloam.runs.fused_driver import FusedDriver
from gloam.emitters import LMMAES, SepCMAES

def evaluate(solutions):
    return 1.0 - (solutions**2).sum(axis=1) / 20.0, solutions[:, :2]

grid = gloam.GridArchive((6, 6), -2.0, 2.0)
cvt = gloam.CVTArchive(np.random.default_rng(0).uniform(-2, 2, (50, 2)), -2.0, 2.0)
x0, cma = np.zeros(9), {"num_emitters": 2, "batch_size": 4}
small = {"num_init_points": 10, "num_empty_points": 5}
algorithms = [
    gloam.DMS(grid, x0, 0.3, num_init_points=10, **cma),
    gloam.DMS.paper(cvt, x0, 0.3, bounds=(-1, 1), **cma, **small),
    gloam.DMS.paper(grid, x0, 0.3, strategy=SepCMAES(), **cma, **small),
    gloam.CMAMAE(grid, x0, 0.3, strategy=LMMAES(), **cma),
    gloam.DDS(cvt, x0, 0.3, bandwidth=0.5, buffer_size=20, **cma),
    gloam.MAPElitesLine(cvt, x0, 0.3, 0.2, batch_size=8),
]
narrow = ("float32", "int32", "bool", "key<fry>")
for algorithm in algorithms:
    driver = FusedDriver(evaluate, algorithm, [0, 1])
    driver.start()
    driver.advance(2)
    search = gloam.Search(algorithm, 2**40)
    search.tell(*evaluate(search.ask()))
    for leaf in jax.tree.leaves((driver.checkpoint(), search.state)):
        assert str(leaf.dtype) in narrow, leaf.dtype
    assert np.isfinite(search.metrics()["qd_score"])
print(np.asarray(search.ask())[0].tolist())
"""


@pytest.mark.slow
def test_other_settings_of_jax_change_nothing():
    settings = [{}, {"JAX_ENABLE_X64": "1", "JAX_DEFAULT_PRNG_IMPL": "rbg"}]
    outputs = []
    for extra in settings:
        found = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | extra,
        )
        assert found.returncode == 0, found.stderr[-3000:]
        outputs.append(found.stdout)
    # With x64 a Python float in an evaluation or a rule may round once less.
    np.testing.assert_allclose(
        *(np.fromstring(o.strip()[1:-1], sep=",") for o in outputs), atol=1e-5
    )


# Seeds


def small_search(seed):
    archive = gloam.GridArchive((4, 4), -1, 1)
    return gloam.Search(gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH), seed)


def test_small_seeds_are_those_of_jax():
    for seed in (0, 1, 2**31, 2**32 - 1):
        expected = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
        np.testing.assert_array_equal(jax.random.key_data(root_key(seed)), expected)


def test_seeds_of_64_bits_have_random_numbers_of_their_own():
    seeds = [1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    drawn = {small_search(seed).ask().tobytes() for seed in seeds}
    assert len(drawn) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 2**64, 10**400, 1.0, True, "1", None])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        small_search(seed)
    with pytest.raises(ValueError, match="seeds"):
        seed_list([seed])


# Fields


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint64, complex, object, "U3"])
def test_dtypes_that_jax_would_narrow_are_refused(dtype):
    class Spec(jax.ShapeDtypeStruct):
        """JAX's own narrows or refuses some dtypes before gloam sees them."""

    spec = Spec((), np.float32)
    object.__setattr__(spec, "dtype", np.dtype(dtype))
    with pytest.raises(ValueError, match="int32 or float32"):
        gloam.GridArchive((4, 4), -1, 1, fields={"extra": spec})


@pytest.mark.parametrize("name", ["cells", "self", "objectives", "measures", "class", "a b", 3])
def test_fields_that_could_not_be_told_are_refused(name):
    with pytest.raises(ValueError, match="fields: expected names"):
        gloam.GridArchive((4, 4), -1, 1, fields={name: ()})


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 0.5, np.nan, np.inf])
def test_values_that_a_field_cannot_hold_are_refused(value):
    fields = {"count": jax.ShapeDtypeStruct((), jnp.int32)}
    archive = gloam.GridArchive((4, 4), -1, 1, fields=fields)
    search = gloam.Search(gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH))
    search.ask()
    count = np.full(BATCH, value)
    with pytest.raises(ValueError, match="count: expected whole numbers"):
        search.tell(np.ones(BATCH), np.zeros((BATCH, 2)), count=count)
    search.tell(np.ones(BATCH), np.zeros((BATCH, 2)), count=np.full(BATCH, 2**31 - 1))
    assert search.elites().field("count").tolist() == [2**31 - 1]


# Numbers


@pytest.mark.parametrize("sigma0", [1e39, 1e-300, 1e-40, 10**400, True, "1", 1j, None])
def test_steps_that_float32_cannot_hold_are_refused(sigma0):
    archive = gloam.GridArchive((4, 4), -1, 1)
    with pytest.raises(ValueError, match="sigma0"):
        gloam.DMS.paper(archive, X0, sigma0)


@pytest.mark.parametrize("f_min", [1e39, -1e39, np.nan, 10**400, 1j])
def test_an_f_min_that_float32_cannot_hold_is_refused(f_min):
    with pytest.raises(ValueError, match="f_min"):
        gloam.GridArchive((4, 4), -1, 1, f_min=f_min)


def test_bounds_without_a_difference_in_float32_are_refused():
    for lower, upper in ((-3e38, 3e38), (0.0, 1e-40), (1.0, 1.0 + 1e-9)):
        with pytest.raises(ValueError, match="lower"):
            gloam.GridArchive((4, 4), lower, upper)


ODD_ARRAYS = {
    "complex": np.zeros(BATCH, complex),
    "text": np.array(["1"] * BATCH),
    "time": np.zeros(BATCH, "datetime64[s]"),
    "objects": np.array([None] * BATCH),
    "booleans": np.zeros(BATCH, bool),
    "masked": np.ma.masked_array(np.ones(BATCH), mask=[1] + [0] * (BATCH - 1)),
}


@pytest.mark.parametrize("kind", ODD_ARRAYS)
def test_arrays_that_are_no_real_numbers_are_refused(kind):
    odd = ODD_ARRAYS[kind]
    search = small_search(0)
    search.ask()
    match = "filled" if kind == "masked" else "expected"
    with pytest.raises(ValueError, match=match):
        search.tell(odd, np.zeros((BATCH, 2)))
    with pytest.raises(ValueError, match=match):
        search.tell(
            np.ones(BATCH),
            np.stack([odd, odd], axis=1) if kind != "masked" else np.ma.stack([odd, odd], axis=1),
        )
    with pytest.raises(ValueError, match=match):
        gloam.MAPElites(gloam.GridArchive((4, 4), -1, 1), odd, 0.5)
    with pytest.raises(ValueError, match=match):
        gloam.GridArchive((2,) * BATCH, odd, 9.0)


# Evaluations on the device


@pytest.mark.parametrize(
    "dtype",
    [
        jnp.int32,
        jnp.bfloat16,
        pytest.param(jnp.float16, marks=pytest.mark.slow),
        pytest.param(jnp.uint8, marks=pytest.mark.slow),
    ],
)
def test_evaluations_of_other_real_dtypes_become_float32(dtype):
    def evaluate(solutions):
        return jnp.ones(solutions.shape[0], dtype), (solutions[:, :2] * 10).astype(dtype)

    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH)
    result = gloam.run(evaluate, algorithm, iterations=2, progress=False)
    assert result.elites.store.objectives.dtype == np.float32
    assert result.elites.best_objective == 1.0


def test_complex_evaluations_are_refused():
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH)
    with pytest.raises(ValueError, match="objectives: expected real numbers"):
        gloam.run(lambda x: (x[:, 0] * 1j, x[:, :2]), algorithm, iterations=1, progress=False)
