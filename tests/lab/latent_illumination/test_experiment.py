"""Latent space illumination from files: the start is kept, and times add up."""

import numpy as np
import pytest

from gloam.datasets import Dataset
from gloam_lab.latent_illumination.experiment import (
    IMAGES_AT_ONCE,
    LsiTimes,
    lsi_domain,
    measure_times,
)
from tests.lab.latent_illumination.test_domain import Means, Waves

ITEMS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


def domain(prompt="abc", **options):
    return lsi_domain(Waves(), Means(), Dataset(ITEMS), prompt, num_starts=40, **options)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path))
    return tmp_path / "lsi-starts"


def test_the_start_is_chosen_once_for_each_prompt(cache, monkeypatch):
    first, other = domain(), domain("a longer prompt")
    assert len(list(cache.iterdir())) == 2
    assert first.x0.shape == other.x0.shape == (4,)
    monkeypatch.setattr("gloam_lab.latent_illumination.domain._best_start", None)
    np.testing.assert_array_equal(domain(num_seeds=3).x0, first.x0)
    with pytest.raises(TypeError):  # the choice, which is missing here, would be made
        domain("another prompt")
    given = domain("another prompt", x0=np.ones(4))
    np.testing.assert_array_equal(given.x0, np.ones(4))


def test_a_damaged_start_is_chosen_again(cache):
    first = domain()
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    np.testing.assert_array_equal(domain().x0, first.x0)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(("seeds", "chunk"), [(1, 12), (5, 2), (12, 1), (20, 1)])
def test_seeds_share_the_images_at_once(cache, seeds, chunk):
    assert IMAGES_AT_ONCE == 12
    assert domain(x0=np.zeros(4), num_seeds=seeds).chunk == chunk


def test_times_are_measured():
    times = measure_times(Waves(), Means(), 20)
    assert times.batch_size == 36
    assert min(times.image, times.embedding, times.search) > 0


def test_times_add_up():
    known = LsiTimes(image=2.0, embedding=0.5, search=1.0, batch_size=36)
    assert known.iteration == 73
    assert known.start == 1024
    assert known.run(10, 100) == 1024 + 50 + 730
