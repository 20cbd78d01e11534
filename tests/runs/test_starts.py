"""Where seeds start: each where its domain says, or all at the algorithm's x0."""

import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.domains import LinearProjection, Triangles
from gloam.runs.fused_driver import FusedDriver
from gloam.runs.options import start_of
from gloam_lab.presets import paper_algorithm
from tests.helpers import assert_same_bits

IMAGES = np.random.default_rng(0).random((12, 16), dtype=np.float32)


def triangles(**changes) -> Triangles:
    return Triangles(IMAGES, **({"num_triangles": 3, "canvas": (4, 4)} | changes))


def algorithm_of(domain, x0=None) -> gloam.CMAMAE:
    start = domain.x0 if x0 is None else x0
    return gloam.CMAMAE(domain.archive(), start, 0.1, num_emitters=2, batch_size=6)


def map_elites(domain) -> gloam.MAPElites:
    return gloam.MAPElites(domain.archive(), domain.x0, 1e-3, batch_size=6)


def starts(domain, algorithm, seeds):
    return np.stack([start_of(domain, algorithm, seed) for seed in seeds])


def test_each_seed_of_triangles_starts_elsewhere_whatever_the_others():
    domain = triangles()
    algorithm = algorithm_of(domain)
    found = starts(domain, algorithm, [1, 2, 3])
    assert len(np.unique(found, axis=0)) == 3
    assert ((found >= 0) & (found < 1)).all()
    np.testing.assert_array_equal(
        found[0], np.random.default_rng(1).random(24, np.float64).astype(np.float32)
    )
    np.testing.assert_array_equal(starts(domain, algorithm, [0])[0], domain.x0)
    state = FusedDriver(domain, algorithm, [3, 2]).checkpoint()
    np.testing.assert_array_equal(state.x0, found[[2, 1]])
    means = state.emitter.gaussians.mean
    np.testing.assert_array_equal(means, np.repeat(state.x0[:, None], 2, axis=1))


def test_the_domain_has_a_seed_for_its_draws():
    ours, others = (
        starts(domain, algorithm_of(domain), [1, 2]) for domain in (triangles(), triangles(seed=9))
    )
    assert not (ours == others).any()


@pytest.mark.parametrize("given", ["to the domain", "to the algorithm"])
def test_an_x0_that_was_given_is_where_all_seeds_start(given):
    x0 = np.linspace(0, 1, 24, dtype=np.float32)
    domain = triangles(x0=x0) if given == "to the domain" else triangles()
    found = starts(domain, algorithm_of(domain, x0), [1, 2])
    np.testing.assert_array_equal(found, [x0, x0])


def test_other_domains_start_all_seeds_alike():
    domain = LinearProjection(measure_dim=2, solution_dim=6)
    archive = gloam.GridArchive((5, 5), -domain.edge, domain.edge)
    algorithm = gloam.CMAMAE(archive, domain.x0, 0.5, num_emitters=2, batch_size=4)
    np.testing.assert_array_equal(starts(domain, algorithm, [1, 2]), np.zeros((2, 6)))


@pytest.mark.slow
def test_while_the_archive_is_empty_its_start_stands_for_elites():
    domain = triangles()
    algorithm = map_elites(domain)
    result = gloam.run(domain, algorithm, seeds=[1, 2], iterations=1, progress=False)
    for seed, elites in zip([1, 2], list(result.elites_by_seed.values()), strict=True):
        assert np.abs(elites.solutions - domain.x0_of(seed)).max() < 0.01


@pytest.mark.slow
def test_a_resumed_run_has_the_same_starts(tmp_path):
    domain = triangles()
    algorithm = map_elites(domain)
    settings = {"seeds": [1, 2], "progress": False}
    whole = gloam.run(domain, algorithm, iterations=6, run_dir=tmp_path / "a", **settings)
    gloam.run(domain, algorithm, iterations=2, run_dir=tmp_path / "b", **settings)
    halves = gloam.resume(tmp_path / "b", iterations=6, progress=False)
    for one, other in zip(
        list(whole.elites_by_seed.values()), list(halves.elites_by_seed.values()), strict=True
    ):
        assert_same_bits(one, other)


def test_a_search_starts_where_it_is_told():
    domain = triangles()
    algorithm = map_elites(domain)
    search = gloam.Search(algorithm, 1, x0=domain.x0_of(1))
    np.testing.assert_array_equal(search.state.x0, domain.x0_of(1))
    search.tell(None, np.asarray(domain(jnp.asarray(search.ask()))))
    np.testing.assert_array_equal(algorithm.emitter.x0, domain.x0)  # not donated with the state
    with pytest.raises(ValueError, match=r"^x0:.*24.*3"):
        gloam.Search(algorithm, 1, x0=np.zeros(3))


def test_optimize_starts_where_run_does():
    domain = triangles()

    class Evaluate:
        x0, x0_of = domain.x0, staticmethod(domain.x0_of)

        def __call__(self, solutions):
            return np.asarray(domain(jnp.asarray(solutions)))

    result = gloam.optimize(
        Evaluate(),
        map_elites(domain),
        1,
        seeds=[2],
        progress=False,
    )
    assert np.abs(result.elites.solutions - domain.x0_of(2)).max() < 0.01


def test_a_wrong_start_is_refused():
    class Wrong(Triangles):
        def x0_of(self, seed):
            return np.zeros(7)

    domain = Wrong(IMAGES, num_triangles=3, canvas=(4, 4))
    with pytest.raises(ValueError, match=r"^x0_of:.*24.*7 for seed 1"):
        FusedDriver(domain, algorithm_of(domain), [1])


def test_the_papers_settings_draw_a_start_for_every_trial():
    images = np.random.default_rng(0).random((5, 784), dtype=np.float32)
    domain = Triangles(images, name="ta-mnist")
    found = starts(domain, paper_algorithm("map-elites", domain), [0, 1])
    assert len(np.unique(found, axis=0)) == 2
