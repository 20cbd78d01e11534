"""Measures with a shape: the same search as with flat rows, to the bit, and clear errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.discounts import CNN, MLP, Frozen
from tests.helpers import assert_same_bits

IMAGES = np.random.default_rng(0).random((30, 6, 5)).astype(np.float32)
COLOURS = np.random.default_rng(1).random((30, 4, 3, 3)).astype(np.float32)
X0 = np.full(10, 0.3, np.float32)


def dms(archive, network=None):
    return gloam.DMS.paper(
        archive,
        X0,
        0.2,
        num_emitters=2,
        batch_size=6,
        num_init_points=20,
        num_empty_points=5,
        network=network,
    )


def map_elites(archive):
    return gloam.MAPElites(archive, X0, 0.2, batch_size=12)


def trace(algorithm, shape):
    """Trace the first state and an iteration, without compiling them."""

    def first_iteration(key):
        state = step.init(algorithm, key)
        return step.step(algorithm, lambda x: pictures(x, shape, jnp), state)

    jax.eval_shape(first_iteration, root_key(0))


def pictures(solutions, shape, module=np):
    """Something of the given shape that depends on all of a solution."""
    waves = module.tile(module.abs(module.sin(3 * solutions)), (1, -(-np.prod(shape) // 10)))
    return waves[:, : np.prod(shape)].reshape(-1, *shape)


def told(algorithm, evaluate, iterations=3):
    search = gloam.Search(algorithm, seed=5)
    for _ in range(iterations):
        search.tell(None, evaluate(search.ask()))
    return search


class Sees(eqx.Module):
    """A network that takes rows of one shape only."""

    weight: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, row):
        assert row.shape == self.shape, f"not {row.shape}"
        return jnp.sum(self.weight * jnp.ravel(row))


# What comes in


@pytest.mark.parametrize("images", [IMAGES, COLOURS], ids=["grey", "colour"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_an_archive_of_images_is_that_of_their_flat_rows(images, metric):
    shaped = gloam.CVTArchive(images, metric=metric)
    flat = gloam.CVTArchive(images.reshape(30, -1), metric=metric)
    assert shaped.measure_shape == images.shape[1:]
    assert flat.measure_shape == (flat.measure_dim,) == (shaped.measure_dim,)
    assert_same_bits(shaped, flat)


def test_bounds_may_have_the_shape():
    low = IMAGES.min(axis=0) - 1
    archive = gloam.CVTArchive(IMAGES, lower=low, upper=5)
    np.testing.assert_array_equal(archive.lower, low.ravel())
    with pytest.raises(ValueError, match=r"^lower:.*30.*\(5, 6\)"):
        gloam.CVTArchive(IMAGES, lower=low.T)


def test_asking_and_telling_in_shape_is_the_search_with_flat_rows():
    shape = IMAGES.shape[1:]
    shaped = told(map_elites(gloam.CVTArchive(IMAGES)), lambda x: pictures(x, shape))
    rows = told(map_elites(gloam.CVTArchive(IMAGES)), lambda x: pictures(x, (30,)))
    flat = told(map_elites(gloam.CVTArchive(IMAGES.reshape(30, 30))), lambda x: pictures(x, (30,)))
    assert_same_bits(shaped.state, rows.state)
    assert_same_bits(shaped.state, flat.state)
    assert len(shaped.elites()) > 0


@pytest.mark.parametrize(
    "images", [pytest.param(IMAGES, marks=pytest.mark.slow), COLOURS], ids=["grey", "colour"]
)
def test_a_domain_may_return_images(images):
    shape = images.shape[1:]
    algorithm = map_elites(gloam.CVTArchive(images))

    def in_shape(x):
        return pictures(x, shape, jnp)

    def flat(x):
        return pictures(x, (np.prod(shape),), jnp)

    options = {"seeds": 2, "iterations": 3, "progress": False}
    for got, want in zip(
        gloam.run(in_shape, algorithm, **options).elites_by_seed.values(),
        gloam.run(flat, algorithm, **options).elites_by_seed.values(),
        strict=True,
    ):
        assert got.measures.shape == (len(got), *shape)
        assert_same_bits(got.store, want.store)


def test_a_failed_image_is_left_out():
    def evaluate(x):
        images = pictures(x, (6, 5))
        images[3, 2, 2] = np.nan
        return images

    search = told(map_elites(gloam.CVTArchive(IMAGES)), evaluate, iterations=2)
    assert search.metrics()["failed"] == 1
    assert int(search.state.failed) == 2


@pytest.mark.parametrize(
    "shape", [(12, 5, 6), (12, 6), (11, 6, 5), (12, 29), (6, 5), (12, 6, 5, 1)]
)
def test_other_shapes_are_refused_before_any_work(shape):
    algorithm = map_elites(gloam.CVTArchive(IMAGES))
    search = gloam.Search(algorithm)
    search.ask()
    expected = r"measures: expected shape \(12, 6, 5\) or \(12, 30\)"
    with pytest.raises(ValueError, match=expected + r" \(one row .*, got shape .* Return one row"):
        search.tell(None, np.zeros(shape))
    assert search.iteration == 0
    with pytest.raises(ValueError, match=expected + ", as the archive has, got .* from the domain"):
        gloam.run(lambda x: jnp.zeros(shape), algorithm, iterations=1, progress=False)


def test_a_flat_archive_takes_no_shape():
    search = gloam.Search(map_elites(gloam.CVTArchive(IMAGES.reshape(30, 30))))
    search.ask()
    with pytest.raises(ValueError, match=r"^measures:.*\(12, 30\)"):
        search.tell(None, np.zeros((12, 6, 5)))


# What a network is given


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 5), (30,)], ids=["shaped", "flat"])
def test_a_network_is_given_the_shape_it_takes(shape):
    weight = jnp.linspace(-1, 1, 30)
    algorithm = dms(gloam.CVTArchive(IMAGES), Sees(weight, shape))
    search = told(algorithm, lambda x: pictures(x, (6, 5)))
    other = told(
        dms(gloam.CVTArchive(IMAGES.reshape(30, 30)), Sees(weight, (30,))),
        lambda x: pictures(x, (30,)),
    )
    assert_same_bits(search.state, other.state)
    # Trained, and not only looked at.
    assert not np.array_equal(search.state.discount.params.weight, weight)


def test_a_network_that_takes_both_is_given_the_shape():
    seen = []

    class Either(eqx.Module):
        def __call__(self, row):
            seen.append(row.shape)
            return jnp.sum(row)

    trace(dms(gloam.CVTArchive(IMAGES), Either()), (6, 5))
    assert set(seen) == {(6, 5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "network"),
    [
        (IMAGES, CNN((6, 5), channels=(3,), hidden=4)),
        (IMAGES, Frozen(jnp.tanh, MLP(30, (8,)), measure_shape=30)),
    ],
    ids=["CNN", "Frozen"],
)
def test_other_networks_of_gloam_take_images_and_rows_alike(images, network):
    shape = images.shape[1:]
    numbers = (int(np.prod(shape)),)
    shaped = told(dms(gloam.CVTArchive(images), network), lambda x: pictures(x, shape))
    flat = told(
        dms(gloam.CVTArchive(images.reshape(30, -1)), network), lambda x: pictures(x, numbers)
    )
    assert_same_bits(shaped.state, flat.state)


def test_a_frozen_embedding_sees_the_shape_it_was_built_for():
    def columns(image):
        return jnp.sum(image, axis=0)

    network = Frozen(columns, MLP(5, (4,)), measure_shape=(6, 5))
    image = jnp.arange(30.0).reshape(6, 5)
    np.testing.assert_array_equal(network.features(image), image.sum(axis=0))
    np.testing.assert_array_equal(network.features(image.ravel()), image.sum(axis=0))
    assert network(image).shape == ()
    # One that was built for flat rows is never given another: its sum is one number.
    assert Frozen(columns, MLP(1, (4,)), measure_shape=30).features(image).shape == (1,)
    trace(dms(gloam.CVTArchive(IMAGES), network), (6, 5))
    with pytest.raises(ValueError, match=r"^embed:.*\(6, 5\)"):
        Frozen(lambda image: image @ image, measure_shape=(6, 5))


def test_a_network_for_neither_is_told_both_reasons():
    message = r"(?s)network: .* 30 measures .*got Sees: .*\(6, 5\) .*not \(6, 5\).*\(30,\) .*not"
    with pytest.raises(ValueError, match=message):
        dms(gloam.CVTArchive(IMAGES), Sees(jnp.zeros(29), (29,)))


# What comes out


def test_elites_have_the_shape_and_tables_are_flat(tmp_path):
    result = gloam.optimize(
        lambda x: pictures(x, (6, 5)),
        map_elites(gloam.CVTArchive(IMAGES)),
        3,
        run_dir=tmp_path,
        progress=False,
    )
    elites = result.elites
    assert elites.measures.shape == (len(elites), 6, 5)
    np.testing.assert_allclose(elites.measures, pictures(elites.solutions, (6, 5)), atol=1e-6)
    table = elites.to_pandas()
    names = [f"measures_{i}" for i in range(30)]
    np.testing.assert_array_equal(table[names], elites.measures.reshape(-1, 30))
    again = gloam.RunFolder(tmp_path).read_archive()
    np.testing.assert_array_equal(again.measures, elites.measures)
    # Files are as they were when measures were flat.
    with np.load(tmp_path / "archive.npz") as arrays:
        assert arrays["measures"].shape == (len(elites), 30)
    assert gloam.Search(map_elites(gloam.CVTArchive(IMAGES))).elites().measures.shape == (0, 6, 5)


def test_a_dataset_hands_its_shape_on():
    data = gloam.datasets.from_array(IMAGES)
    archive = data.archive()
    assert archive.measure_shape == (6, 5)
    assert data.embedded(
        lambda images: images.reshape(len(images), -1)[:, :7] / 255.0, cache=False, progress=False
    ).archive().measure_shape == (7,)
    search = told(map_elites(archive), lambda x: pictures(x, (6, 5)))
    matches = gloam.datasets.Matches(search.elites(), data)
    apart = IMAGES[:, None] - search.elites().measures
    nearest = np.sqrt(np.square(apart).sum(axis=(2, 3))).min(axis=1)
    np.testing.assert_allclose(matches.distances, nearest, rtol=1e-5)
    assert len(matches.held_out(gloam.datasets.from_array(IMAGES[:4] / 2))) == 4
