"""JAX's settings, seeds, fields and numbers: each is used as meant or refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam._tools.draws import root_key
from gloam.runs.options import seed_list
from tests import problems
from tests.helpers import assert_same_bits

pytestmark = pytest.mark.slow  # searches of its own are compiled

BATCH = 4
X0 = np.zeros(2)


# jax_enable_x64


@pytest.fixture
def x64():
    """Switch on float64, as many users of JAX do; the function switches it off again."""
    jax.config.update("jax_enable_x64", True)
    yield lambda: jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_enable_x64", False)


def begin(driver, algorithm, iterations, **options):
    options = {"seeds": [7], "progress": False} | options
    if driver == "asynchronous":
        return gloam.optimize(
            problems.evaluate, algorithm, iterations, asynchronous=True, **options
        )
    start = gloam.run if driver == "fused" else gloam.optimize
    return start(problems.evaluate, algorithm, iterations, **options)


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        pytest.param("map-elites-line", "fused", marks=pytest.mark.release),
        ("map-elites-line", "ask-tell"),
        pytest.param("dms", "fused", marks=pytest.mark.release),
        pytest.param("climbing", "fused", marks=pytest.mark.release),
    ],
)
def test_x64_changes_no_bit_and_a_run_continues_without_it(x64, tmp_path, name, driver):
    algorithm = problems.small(name)
    begin(driver, algorithm, 2, run_dir=tmp_path)
    x64()
    found = begin(driver, algorithm, 4, run_dir=tmp_path, resume=True)
    expected = begin(driver, algorithm, 4)
    for seed, elites in expected.elites_by_seed.items():
        assert_same_bits(found.elites_by_seed[seed], elites)
    folder = gloam.RunFolder(tmp_path)
    assert {
        str(a.dtype) for a in folder._checkpoints.read_arrays("", run=folder._identity)[0].values()
    } <= {"float32", "int32", "uint32", "bool"}


def test_an_evaluation_may_compute_in_float64(x64):
    seen = []

    def evaluate(solutions):
        wide = solutions.astype(jnp.float64)
        seen.append(wide.dtype)
        return 1.0 - 1e-9 * wide.sum(axis=1), wide[:, :2]

    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -1, 1), X0, 0.5, batch_size=BATCH)
    result = gloam.run(evaluate, algorithm, iterations=2, progress=False)
    assert set(seen) == {jnp.dtype("float64")}
    assert result.elites.store.objectives.dtype == np.float32


class WideNetwork(eqx.Module):
    """A network of the user's own, whose weights are float64 with jax_enable_x64."""

    weight: jax.Array

    def __call__(self, measures):
        return measures @ self.weight


@pytest.mark.release
def test_a_network_with_float64_weights_is_trained_in_float32(x64):
    network = WideNetwork(jnp.ones(2))
    assert network.weight.dtype == jnp.float64
    archive = gloam.GridArchive((4, 4), -1, 1)
    small = {"num_emitters": 1, "batch_size": BATCH, "num_init_points": 5, "num_empty_points": 5}
    search = gloam.Search(gloam.DMS.paper(archive, X0, 0.5, network=network, **small))
    search.tell(*problems.evaluate(search.ask()))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(search.state.discount)} == {
        "float32",
        "int32",
    }


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


@pytest.mark.parametrize("seed", [2**31, 2**40, 2**64 - 1])
def test_runs_and_searches_of_large_seeds_are_read_back(tmp_path, seed):
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH)
    options = {"seeds": [seed, 3], "progress": False}
    for start in (gloam.run, gloam.optimize):
        folder = tmp_path / start.__name__
        start(problems.evaluate, algorithm, 2, run_dir=folder, **options)
        found = start(problems.evaluate, algorithm, 3, run_dir=folder, resume=True, **options)
        expected = start(problems.evaluate, algorithm, 3, **options)
        assert_same_bits(found.elites_by_seed[seed], expected.elites_by_seed[seed])
        assert_same_bits(gloam.RunFolder(folder).read_archive(seed), found.elites_by_seed[seed])
        assert found.metrics["seed"].tolist() == [seed, 3] * 2
    search = small_search(seed)
    search.save(tmp_path / "search.npz")
    again = gloam.Search.load(tmp_path / "search.npz")
    assert again.seed == seed
    np.testing.assert_array_equal(again.ask(), search.ask())


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
    with pytest.raises(ValueError, match=r"^fields:"):
        gloam.GridArchive((4, 4), -1, 1, fields={name: ()})


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 0.5, np.nan, np.inf])
def test_values_that_a_field_cannot_hold_are_refused(value):
    fields = {"count": jax.ShapeDtypeStruct((), jnp.int32)}
    archive = gloam.GridArchive((4, 4), -1, 1, fields=fields)
    search = gloam.Search(gloam.MAPElites(archive, X0, 0.5, batch_size=BATCH))
    search.ask()
    count = np.full(BATCH, value)
    with pytest.raises(ValueError, match=r"^count:"):
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
        jnp.bfloat16,
        pytest.param(jnp.int32, marks=pytest.mark.release),
        pytest.param(jnp.float16, marks=pytest.mark.release),
        pytest.param(jnp.uint8, marks=pytest.mark.release),
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
    with pytest.raises(ValueError, match=r"^objectives:"):
        gloam.run(lambda x: (x[:, 0] * 1j, x[:, :2]), algorithm, iterations=1, progress=False)
