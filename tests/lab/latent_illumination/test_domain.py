"""Latent space illumination on small networks, against the formulas written out in NumPy."""

import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.datasets import Dataset
from gloam.formats import objects
from gloam_lab import Generator
from gloam_lab.latent_illumination import (
    CLIP,
    Embedder,
    LatentIllumination,
    StyleGAN3,
    StyleGAN3Settings,
)
from tests.lab.latent_illumination.reference import trained
from tests.lab.latent_illumination.test_clip import CONFIG, random_tensors

SETTINGS = StyleGAN3Settings(
    img_resolution=16, z_dim=5, w_dim=7, channel_base=32, channel_max=4, num_layers=3
)


class Waves(Generator):
    """Images of waves: a generator of a few lines."""

    phases: jax.Array

    def __init__(self):
        self.phases = jnp.linspace(0, 3, 3 * 8 * 8).reshape(3, 8, 8)

    z_dim = property(lambda self: 4)
    w_dim = property(lambda self: 4)
    num_ws = property(lambda self: 9)
    image_shape = property(lambda self: (3, 8, 8))
    w_avg = property(lambda self: jnp.array([1.0, 0.0, -1.0, 0.5]))

    def map(self, z, truncation=1.0):
        return self.w_avg + truncation * z * jnp.array([1.0, 2.0, 3.0, 4.0])

    def images(self, w):
        a, b, c, d = (column[:, None, None, None] for column in w.T)
        return jnp.clip(jnp.sin(a * self.phases + b) * jnp.cos(c * self.phases) + 0.1 * d, -1, 1)


class Means(Embedder):
    """Embeddings of the means of parts of images."""

    embedding_dim = property(lambda self: 4)

    def embed_images(self, images):
        if images.dtype == jnp.uint8:
            images = jnp.moveaxis(images / 127.5 - 1.0, 3, 1)
        n = images.shape[0]
        parts = images[:, :, :8, :8].reshape(n, 3, 2, 4, 2, 4).mean(axis=(1, 3, 5)).reshape(n, 4)
        return parts / jnp.linalg.norm(parts, axis=1, keepdims=True)

    def embed_texts(self, texts):
        rows = jnp.array([[len(text), 1.0, 2.0, -1.0] for text in texts])
        return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


evaluated = eqx.filter_jit(lambda domain, q: domain(q))
PICTURES = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def domain():
    return LatentIllumination(Waves(), Means(), "abc", _dataset(), num_starts=40, chunk=5, seed=3)


def _dataset():
    return Dataset(PICTURES / 255.0)


def test_the_objective_is_the_formula(domain):
    rng = np.random.default_rng(1)
    q = rng.normal(0, 1, (13, 4)).astype(np.float32) * np.linspace(0.1, 3, 13)[:, None]
    q = q.astype(np.float32)
    w = np.asarray(domain.generator.w_avg) + q * np.asarray(domain.scale)
    embed = jax.jit(lambda w: domain.embedder.embed_images(domain.generator.images(w)))
    a = np.asarray(embed(w))
    b = np.asarray(domain.embedder.embed_texts(["abc"]))[0]
    items = np.asarray(jax.jit(domain.embedder.embed_images)(PICTURES))
    cosines = a @ items.T
    f_centroid = (1 + cosines.max(axis=1)) / 2
    repeated = np.repeat(q[:, None], 9, axis=1).reshape(13, -1)
    over = np.maximum(0, np.linalg.norm(repeated, axis=1) - float(domain.free_norm))
    assert (over == 0).any()
    assert (over > 1).any()
    distance = 2 * np.arcsin(np.linalg.norm(a - b, axis=1) / 2) ** 2
    f_prompt = 1 - 0.5 * (distance + 0.2 * over**2)
    objectives, measures = evaluated(domain, q)
    np.testing.assert_allclose(measures, a, rtol=0, atol=1e-5)
    np.testing.assert_allclose(objectives, (f_prompt + f_centroid) / 2, rtol=1e-5, atol=1e-5)
    cells = domain.archive().index_of(measures)
    np.testing.assert_array_equal(cells, cosines.argmax(axis=1))
    plain = LatentIllumination(Waves(), Means(), None, _dataset(), x0=np.zeros(4), seed=3)
    expected = f_centroid - 0.05 * over**2
    np.testing.assert_allclose(evaluated(plain, q)[0], expected, rtol=1e-5, atol=1e-5)


def test_latents_are_scaled_by_samples(domain):
    np.testing.assert_allclose(domain.scale, [1, 2, 3, 4], rtol=0.03)
    # The mean length of 4 normal numbers is 1.880; repeated for 9 layers it is 3 times that.
    assert float(domain.free_norm) == pytest.approx(0.35 * 3 * 1.880, rel=0.02)


@pytest.mark.parametrize("num_starts", [1, 7, 40])
def test_the_start_is_the_best_of_truncated_samples(domain, num_starts):
    options = {"num_starts": num_starts, "chunk": 5, "seed": 3}
    x0 = LatentIllumination(Waves(), Means(), "abc", _dataset(), **options).x0
    key = jax.random.split(jax.random.key(3))[1]
    w = Waves().map(jax.random.normal(key, (num_starts, 4)), 0.7)
    rows = (w - Waves().w_avg) / domain.scale
    distances = jnp.linalg.norm(evaluated(domain, rows)[1] - domain.prompt, axis=1)
    np.testing.assert_allclose(x0, rows[jnp.argmin(distances)], rtol=1e-5)


def test_chunks_change_nothing_and_a_broken_row_fails_alone(domain):
    q = np.random.default_rng(2).normal(0, 1, (13, 4)).astype(np.float32)
    options = {"x0": np.zeros(4), "chunk": 64, "seed": 3}
    whole = LatentIllumination(Waves(), Means(), "abc", _dataset(), **options)
    expected = evaluated(whole, q)
    for found, want in zip(evaluated(domain, q), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-6)
    q[4, 2] = np.nan
    objectives, measures = evaluated(domain, q)
    good = np.arange(13) != 4
    assert not np.isfinite(objectives[4])
    np.testing.assert_allclose(objectives[good], expected[0][good], rtol=0, atol=1e-6)
    np.testing.assert_allclose(measures[good], expected[1][good], rtol=0, atol=1e-6)


def test_gradients_are_those_of_the_plain_functions(domain):
    """Chunks, recomputed activations and scaled weights change nothing."""
    random = np.random.default_rng(4)
    q = jnp.asarray(random.normal(0, 1, (13, 4)), jnp.float32).at[0].set(0.0)
    weights = (
        random.normal(0, 1, (13, 4)).astype(np.float32) * np.geomspace(1e-12, 1e3, 13)[:, None]
    )
    weights = jnp.asarray(weights, jnp.float32).at[5].set(0.0)

    def plain(q):
        return domain.embedder.embed_images(
            domain.generator.images(domain.generator.w_avg + domain.scale * q)
        )

    (found,) = jax.jit(lambda q: jax.vjp(domain.embeddings, q)[1](weights))(q)
    (expected,) = jax.jit(lambda q: jax.vjp(plain, q)[1](weights))(q)
    rows = np.linalg.norm(expected, axis=1, keepdims=True)
    assert (np.delete(rows, 5) > 0).all()
    np.testing.assert_allclose(found / (rows + 1e-30), expected / (rows + 1e-30), atol=1e-4)
    # At the mean latent (row 0) the norm has no gradient, but the objective has.
    of_objective = jax.jit(jax.grad(lambda q: jnp.sum(domain(q)[0])))(q)
    assert np.isfinite(of_objective).all()


def test_pictures_are_rendered(domain):
    pictures = domain.render(np.zeros((6, 4), np.float32))
    assert pictures.shape == (6, 8, 8, 3)
    image = domain.generator.images(domain.generator.w_avg[None])[0]
    np.testing.assert_allclose(pictures[5], (image.transpose(1, 2, 0) + 1) / 2, rtol=0, atol=1e-6)
    small = domain.render(np.zeros((1, 4), np.float32), (4, 2))
    assert small.shape == (1, 4, 2, 3)
    assert float(small.mean()) == pytest.approx(float(pictures[0].mean()), abs=0.05)
    larger = jax.eval_shape(lambda q: domain.render(q, 16), np.zeros((1, 4), np.float32))
    assert larger.shape == (1, 16, 16, 3)


def algorithm(domain):
    settings = {"num_emitters": 2, "batch_size": 8, "alpha": 1.0}
    settings |= {"num_init_points": 20, "num_empty_points": 5}
    return gloam.DMS.paper(domain.archive(), domain.x0, 0.3, **settings)


def test_both_drivers_search_alike(domain):
    iterations = 4
    fused = gloam.run(domain, algorithm(domain), seeds=[5], iterations=iterations, progress=False)
    hosted = gloam.optimize(
        lambda q: tuple(np.asarray(part) for part in evaluated(domain, q)),
        algorithm(domain),
        iterations,
        seeds=[5],
        progress=False,
    )
    rows = [result.metrics.iloc[-1] for result in (fused, hosted)]
    assert rows[0]["evaluations"] == rows[1]["evaluations"] == iterations * 16
    assert rows[0]["coverage"] == rows[1]["coverage"] > 0.2
    assert rows[0]["qd_score"] == pytest.approx(rows[1]["qd_score"], rel=1e-3)


def test_two_seeds_run_at_once_by_another_algorithm(domain):
    # At 0 there is no penalty, which would make objectives negative and warn.
    map_elites = gloam.MAPElites(domain.archive(), np.zeros(4), 0.3, batch_size=16)
    result = gloam.run(domain, map_elites, seeds=2, iterations=2, progress=False)
    assert (result.metrics["coverage"] > 0).all()


@functools.cache
def networks():
    return StyleGAN3(SETTINGS, trained(SETTINGS)), CLIP(CONFIG, random_tensors())


def stylegan_domain(**options):
    options |= {"prompt": np.arange(1.0, 7.0), "dataset": _dataset()}
    return LatentIllumination(*networks(), num_starts=2, chunk=4, **options)


@pytest.mark.parametrize("gradients", [False, True])
def test_stylegan_and_clip_are_searched_fused_and_resumed(gradients, tmp_path):
    domain = stylegan_domain(x0=np.zeros(7))
    options = {"num_emitters": 1, "batch_size": 6, "num_init_points": 10, "num_empty_points": 3}
    build = functools.partial(gloam.DMS, gradients=True) if gradients else gloam.DMS.paper
    start = build(domain.archive(), domain.x0, 0.2, alpha=1.0, **options)
    options = {"seeds": [1], "progress": False}
    whole = gloam.run(domain, start, iterations=3, **options)
    gloam.run(domain, start, iterations=2, run_dir=tmp_path / "run", **options)
    with pytest.raises(gloam.errors.ForeignError, match="LatentIllumination"):
        gloam.resume(tmp_path / "run", iterations=3, progress=False)
    options |= {"run_dir": tmp_path / "run", "resume": True}
    rest = gloam.run(domain, start, iterations=3, **options)
    np.testing.assert_array_equal(whole.elites.objectives, rest.elites.objectives)
    assert len(whole.elites) > 0
    if gradients:
        last = whole.metrics.iloc[-1]
        assert (last["gradients"], last["ascent_gradients_failed"]) == (3 * 6, 0)


def test_a_run_folder_holds_a_digest_of_the_domain_only():
    one, same = (stylegan_domain(name="lsi-small", x0=np.zeros(7)) for _ in range(2))
    arrays = {}
    assert objects.encode(one, arrays) == objects.encode(same, arrays)
    assert arrays == {}


def test_landscapes_become_cells(shared_data):
    folder = shared_data / "images" / "landscapes"
    if not folder.is_dir():
        pytest.skip(f"no '{folder}': the landscapes are not here")
    data = gloam.datasets.from_folder(folder)
    _, model = networks()
    embedded = LatentIllumination.embedded(data, model, cache=False, progress=False)
    domain = LatentIllumination(Waves(), model, None, embedded, x0=np.zeros(4))
    assert domain.archive().num_cells == len(embedded) == 43
    assert embedded.has_images
    objectives, _ = evaluated(domain, np.zeros((1, 4)))
    assert 0 < float(objectives[0]) <= 1


def test_the_recorded_networks_search_landscapes(shared_data):
    paths = [shared_data / "stylegan3", shared_data / "clip", shared_data / "images/landscapes"]
    missing = [str(path) for path in paths if not path.is_dir()]
    if missing:
        pytest.skip(f"no {missing}: the recorded networks and landscapes are not here")
    arguments = json.loads((paths[0] / "tiny32_t_spec.json").read_text())["ctor"]
    network = StyleGAN3(
        StyleGAN3Settings.from_constructor(arguments), np.load(paths[0] / "tiny32_t_state.npz")
    )
    config = json.loads((paths[1] / "tiny_clip_config.json").read_text())["hf"]
    model = CLIP(config, dict(np.load(paths[1] / "tiny_clip_hf_state.npz")))
    prompt = np.load(paths[1] / "tiny_clip_io.npz")["text_features"][0]
    data = gloam.datasets.from_folder(paths[2]).subsample(9, seed=1)
    data = LatentIllumination.embedded(data, model, cache=False, progress=False)
    domain = LatentIllumination(network, model, prompt, data, x0=np.zeros(64), chunk=4)
    search = gloam.DMS.paper(
        domain.archive(),
        domain.x0,
        0.2,
        num_emitters=1,
        batch_size=8,
        num_init_points=9,
        num_empty_points=3,
    )
    result = gloam.run(domain, search, seeds=[1], iterations=3, dataset=data, progress=False)
    last = result.metrics.iloc[-1]
    assert last["coverage"] > 0
    assert np.isfinite(last["qd_score"])
    # The objectives of the elites are those of a separate evaluation.
    objectives, _ = evaluated(domain, result.elites.solutions)
    np.testing.assert_allclose(objectives, result.elites.objectives, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generator": 3}, "generator: expected Generator, got int"),
        ({"embedder": None}, "embedder: expected Embedder, got NoneType"),
        ({"dataset": None}, "dataset: expected a dataset or an array, got None"),
        ({"dataset": np.ones((5, 3)) + np.arange(5)[:, None]}, "items that are pictures"),
        ({"dataset": np.ones((1, 4))}, "items: expected at least 2 items"),
        ({"prompt": np.ones(3)}, "prompt: expected an embedding of 4 numbers, got 3"),
        ({"x0": np.zeros(5)}, "x0: expected 4 numbers, got 5"),
        ({"chunk": 0}, "chunk: expected a whole number >= 1"),
        ({"num_starts": 0}, "num_starts: expected a whole number >= 1"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    arguments = {"generator": Waves(), "embedder": Means(), "prompt": None, "dataset": _dataset()}
    with pytest.raises(ValueError, match=message):
        LatentIllumination(**arguments | change)


def test_latents_of_another_size_are_refused(domain):
    with pytest.raises(ValueError, match=r"solutions: .*shape"):
        domain(jnp.zeros((2, 5)))
