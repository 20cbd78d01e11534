"""Filled archives of noisy images, put together without a search."""

import jax
import numpy as np
import pytest

import gloam
from gloam.archives.store import Store
from gloam.datasets import Matches, from_array
from gloam.gallery import elite_pictures

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "\"><script>alert('2')</script>",
    "<!--data--> & ' \" `${alert(3)}`",
    "$\\frac{ \u2028 ]]> <b>",
]


def found(data, measures, objectives, cells=None, **fields):
    """Matches of an archive put together without a search."""
    cells = np.arange(len(data)) if cells is None else cells

    def everywhere(values, empty=0.0):
        values = np.asarray(values)
        whole = np.full((len(data), *values.shape[1:]), empty, values.dtype)
        whole[cells] = values
        return whole

    specs = {name: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for name, v in fields.items()}
    store = Store(
        everywhere(np.asarray(cells, np.float32)[:, None]),
        everywhere(np.asarray(objectives, np.float32), -np.inf),
        everywhere(np.asarray(measures, np.float32)),
        {name: everywhere(values) for name, values in fields.items()},
    )
    return Matches(gloam.Elites(data.archive(fields=specs), store), data)


def noisy(count=40, shape=(6, 4), *, labels=True, names=None, empty=5, seed=0):
    """Noisy copies of random pictures, more noise for the later ones; the last have no elite."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    marks = [f"label {i % 3}" for i in range(count)] if labels is True else labels or None
    data = from_array(items, labels=marks, names=names)
    kept = count - empty
    noise = np.linspace(0, 0.3, kept)[:, None] * rng.normal(size=(kept, data.items.shape[1]))
    measures = (data.items[:kept] + noise).clip(0, 1)
    return found(data, measures, rng.permutation(kept) / kept, np.arange(kept))


@pytest.fixture(scope="module")
def matches():
    return noisy()


@pytest.fixture(scope="module")
def pictures(matches):
    return elite_pictures(matches.elites, matches.dataset)


def expected(matches, pictures, table):
    """Solution and item in turn."""
    solutions = pictures(table["row"].to_numpy())
    items = [matches.dataset.image(item) for item in table["item"]]
    return [side for pair in zip(solutions, items, strict=True) for side in pair]
