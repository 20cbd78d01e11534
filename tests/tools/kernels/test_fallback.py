"""Where kernels run, and that plain code replaces those that cannot be imported or compiled."""

import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam._tools import kernels
from gloam.archives import kmeans_centroids
from tests.tools.kernels.test_kernels import small_search

pytestmark = [pytest.mark.first, pytest.mark.slow]
MODULES = ("cholesky", "minibatch", "nearest")


@pytest.mark.parametrize(
    ("capability", "setting", "usable"),
    [("9.0", None, True), ("10.0", None, True), ("7.5", None, False), ("9.0", "off", False)],
)
def test_where_kernels_run(capability, setting, usable, monkeypatch):
    monkeypatch.setattr(kernels, "compute_capability", lambda: float(capability))
    if setting is not None:
        monkeypatch.setenv("GLOAM_KERNELS", setting)
    assert kernels.usable() == usable


@pytest.fixture
def forced(monkeypatch):
    """Kernels that claim to be usable, on a CPU, where none of them can be lowered."""
    jax.clear_caches()
    monkeypatch.setattr(kernels, "_switched_off", False)
    monkeypatch.setattr(kernels, "usable", lambda: True)
    yield
    jax.clear_caches()


def warned(run):
    """The result, and the number of warnings about kernels."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = run()
    assert all("kernels for GPUs cannot be used" in str(warning.message) for warning in seen)
    return result, len(seen)


def factorize(matrix):
    """A function with a kernel, as gloam has them."""
    module = kernels.load("cholesky")
    return jnp.linalg.cholesky(matrix) if module is None else module.cholesky(matrix)


MATRIX = jnp.array([[4.0, 2.0], [2.0, 2.0]])
FACTOR = [[2.0, 0.0], [1.0, 1.0]]


def assert_falls_back_once():
    compiled = kernels.jit(factorize)
    for expected in (1, 0):
        found, number = warned(lambda: compiled(MATRIX))
        np.testing.assert_allclose(found, FACTOR)
        assert number == expected
    assert all(kernels.load(name) is None for name in MODULES)


def test_a_program_that_cannot_be_lowered_is_compiled_without_kernels(forced):
    assert_falls_back_once()


def test_a_kernel_that_raises_is_replaced(forced, monkeypatch):
    def fails(matrix):
        raise TypeError("CompilerParams() got an unexpected keyword argument")

    monkeypatch.setattr(kernels.load("cholesky"), "cholesky", fails)
    assert_falls_back_once()


@pytest.mark.parametrize("name", MODULES)
def test_a_kernel_that_cannot_be_imported_is_replaced(name, forced, monkeypatch):
    monkeypatch.setitem(sys.modules, f"gloam._tools.kernels.{name}", None)
    module, number = warned(lambda: kernels.load(name))
    assert module is None
    assert number == 1
    found, number = warned(lambda: kernels.jit(factorize)(MATRIX))
    np.testing.assert_allclose(found, FACTOR)
    assert number == 0


def test_an_error_of_the_plain_code_is_raised_as_it_is(forced):
    def fails():
        raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        kernels.with_fallback(fails, fails)
    assert kernels.load("cholesky") is not None


def test_archives_and_kmeans_fall_back(forced, monkeypatch):
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    archive = gloam.CVTArchive(points[:20])
    cells, number = warned(lambda: archive.index_of(jnp.asarray(points)))
    wanted = ((points[:, None] - points[:20]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(cells, wanted)
    assert number == 1
    monkeypatch.setattr(kernels, "_switched_off", False)
    centroids, number = warned(lambda: kmeans_centroids(5, 0, 1, 2, num_iterations=2))
    assert centroids.shape == (5, 2)
    assert number == 1


def run_on_device(domain, algorithm):
    return gloam.run(domain, algorithm, seeds=[0], iterations=3, progress=False).elites


def ask_and_tell(domain, algorithm):
    search = gloam.Search(algorithm)
    for _ in range(3):
        search.tell(*map(np.asarray, domain(jnp.asarray(search.ask()))))
    return search.elites()


def map_elites():
    """A search with one kernel only, that of nearest centroids."""
    domain, algorithm = small_search()
    return domain, gloam.MAPElites(algorithm.archive, domain.x0, 0.5, batch_size=8)


@pytest.mark.parametrize(
    ("search", "pieces"),
    [
        (run_on_device, map_elites),
        pytest.param(ask_and_tell, small_search, marks=pytest.mark.slow),
    ],
)
def test_a_search_falls_back(search, pieces, request):
    wanted = search(*pieces())
    request.getfixturevalue("forced")
    found, number = warned(lambda: search(*pieces()))
    np.testing.assert_array_equal(found.cells, wanted.cells)
    np.testing.assert_allclose(found.objectives, wanted.objectives, rtol=1e-5)
    assert number == 1


# Experimental modules of JAX

TRACED = """
import sys
import jax
import gloam
from gloam import step
def experimental():
    kinds = ("jax.experimental.pallas", "jax.experimental.buffer_callback")
    return [name for name in sys.modules if name.startswith(kinds)]
assert not experimental(), experimental()
domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
algorithm = gloam.DMS.paper(domain.archive(), domain.x0, 0.5, num_emitters=1, batch_size=4)
def search(key):
    state = step.init(algorithm, key)
    proposal = step.ask(algorithm, state)
    evaluation = *domain(proposal.solutions), {}
    return step.tell(algorithm, state, proposal, evaluation, None)
jax.eval_shape(search, jax.random.key(0))
assert not experimental(), experimental()
"""


@pytest.mark.slow
def test_a_search_on_a_cpu_imports_nothing_experimental():
    code = TRACED if jax.default_backend() == "cpu" else "import gloam"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
