"""One folder for what can be made again, of whoever makes it."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from gloam import cli
from gloam import files as cache
from gloam.datasets import embedding
from gloam.domains import LinearProjection, linear_projection


def only(monkeypatch, **variables):
    for name in ("GLOAM_CACHE", "XDG_CACHE_HOME", "HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="folders of Linux")
@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"GLOAM_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"GLOAM_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/gloam"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/gloam"),
        ({"XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/gloam"),
        ({"HOME": "/c"}, "/c/.cache/gloam"),
    ],
)
def test_the_cache_is_where_the_environment_says(variables, folder, monkeypatch):
    only(monkeypatch, **variables)
    assert cache.cache_folder() == Path(folder)


def centroids(folder, monkeypatch):
    asked = []

    def remember(cells, lower, upper, dimensions, *, cache):
        asked.append(cache)
        return np.eye(dimensions, dtype=np.float32)

    monkeypatch.setattr(linear_projection, "kmeans_centroids", remember)
    LinearProjection(10).archive()
    return asked[0]


def compiled_programs(folder, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    try:
        cli._keep_compiled_programs()
        return Path(jax.config.jax_compilation_cache_dir)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def embeddings(folder, monkeypatch):
    monkeypatch.setattr(embedding, "_can_write", lambda folder: False)
    return embedding._folder(True, folder / "data.npy")


@pytest.mark.parametrize("user", [centroids, compiled_programs, embeddings])
def test_all_users_keep_their_files_below_it(user, tmp_path, monkeypatch):
    only(monkeypatch, GLOAM_CACHE=str(tmp_path / "cache"), HOME=str(tmp_path / "home"))
    assert user(tmp_path, monkeypatch).is_relative_to(tmp_path / "cache")
