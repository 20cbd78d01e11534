"""Where kernels cannot be imported or compiled, the plain twins run, with one warning."""

import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gloam.programs.search_programs import search_programs

import gloam
from gloam import kernels
from gloam.programs.fused_program import fused_program
from gloam.runs.fused_driver import FusedDriver

MODULES = ("cholesky", "minibatch", "nearest")


@pytest.fixture
def forced(monkeypatch):
    """Kernels that are said to be usable, on a CPU, where none of them can be lowered."""
    jax.clear_caches()
    # Programs that an earlier test compiled without kernels would be found again.
    fused_program.cache_clear()
    search_programs.cache_clear()
    monkeypatch.setattr(kernels, "_switched_off", False)
    monkeypatch.setattr(kernels, "usable", lambda: True)
    yield
    jax.clear_caches()


def algorithm():
    archive = gloam.CVTArchive(np.random.default_rng(0).uniform(-50, 50, (40, 5)))
    domain = gloam.domains.LinearProjection(measure_dim=5, solution_dim=10)
    return domain, gloam.DMS.paper(
        archive, domain.x0, 0.5, num_emitters=2, batch_size=8, num_empty_points=20
    )


def fused(seeds=(0, 1)):
    search = FusedDriver(*algorithm(), list(seeds))
    search.start()
    search.advance(2)
    search.advance(1)
    return search.elites()[0]


def asked_and_told():
    domain, pieces = algorithm()
    search = gloam.Search(pieces)
    for _ in range(3):
        search.tell(*map(np.asarray, domain(jnp.asarray(search.ask()))))
    return search.elites()


@pytest.fixture(scope="module")
def by_fused():
    """What the search finds without kernels."""
    return fused()


@pytest.fixture(params=["fused", "asked and told"])
def search(request):
    """A search, and what it finds without kernels."""
    if request.param == "fused":
        return fused, request.getfixturevalue("by_fused")
    return asked_and_told, asked_and_told()


def same(found, wanted):
    np.testing.assert_array_equal(found.cells, wanted.cells)
    np.testing.assert_allclose(found.objectives, wanted.objectives, rtol=1e-5)


def warned(run):
    """The result, and the warnings about kernels."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = run()
    assert all("kernels for GPUs cannot be used" in str(warning.message) for warning in seen)
    return result, len(seen)


def test_a_program_that_cannot_be_lowered_is_compiled_without_kernels(search, forced):
    run, wanted = search
    found, warnings_ = warned(run)
    same(found, wanted)
    assert warnings_ == 1
    assert all(kernels.load(name) is None for name in MODULES)
    found, warnings_ = warned(run)
    same(found, wanted)
    assert warnings_ == 0


@pytest.mark.parametrize("name", ["minibatch", "cholesky", "nearest"])
def test_a_kernel_that_raises_is_replaced(name, by_fused, forced, monkeypatch):
    def fails(*_, **__):
        raise TypeError("CompilerParams() got an unexpected keyword argument")

    module = kernels.load(name)
    assert module is not None
    for other in MODULES:
        if other != name:
            monkeypatch.setitem(sys.modules, f"gloam.kernels.{other}", None)
    function = {"minibatch": "sweep", "cholesky": "cholesky", "nearest": "most_similar"}[name]
    monkeypatch.setattr(module, function, fails)
    found, warnings_ = warned(fused)
    same(found, by_fused)
    assert warnings_ == 1


def test_kernels_that_cannot_be_imported_are_done_without(search, forced, monkeypatch):
    for name in MODULES:
        monkeypatch.setitem(sys.modules, f"gloam.kernels.{name}", None)
    run, wanted = search
    found, warnings_ = warned(run)
    same(found, wanted)
    assert warnings_ == 1


def test_outside_of_drivers_the_twins_run_too(forced):
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    archive = gloam.CVTArchive(points[:20])
    cells, warnings_ = warned(lambda: archive.index_of(jnp.asarray(points)))
    wanted = ((points[:, None] - points[:20]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(cells, wanted)
    assert warnings_ == 1


def test_kmeans_falls_back(forced):
    centroids, warnings_ = warned(lambda: gloam.kmeans_centroids(5, 0, 1, 2, num_iterations=2))
    assert centroids.shape == (5, 2)
    assert warnings_ == 1


def test_an_error_that_is_not_of_the_kernels_is_told_as_it_is(forced):
    def fails():
        raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        kernels.with_plain_twins(fails, fails)
    assert kernels.load("cholesky") is not None


# Experimental modules of JAX

SEARCH = """
import sys
import numpy as np
import gloam
def experimental():
    kinds = ("jax.experimental.pallas", "jax.experimental.buffer_callback")
    return [name for name in sys.modules if name.startswith(kinds)]
assert not experimental(), experimental()
domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
algorithm = gloam.DMS.paper(domain.archive(), domain.x0, 0.5, num_emitters=1, batch_size=4)
gloam.run(domain, algorithm, iterations=1, progress=False)
gloam.optimize(lambda x: (-(x**2).sum(1), x[:, :2]), algorithm, 1, progress=False)
assert not experimental(), experimental()
"""


def test_a_search_on_a_cpu_imports_nothing_experimental():
    code = SEARCH if jax.default_backend() == "cpu" else "import gloam"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
