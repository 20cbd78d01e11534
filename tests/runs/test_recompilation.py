"""A second search of the same shapes compiles nothing, whatever its seed, numbers and arrays."""

import dataclasses
import gc
import weakref
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
import gloam_lab
from gloam._tools.programs import partition
from gloam.domains import Domain
from gloam.emitters import RestartEvery, Variation
from gloam.runs import fused_driver
from gloam.runs.fused_driver import FusedDriver
from tests.problems import evaluate

pytestmark = [pytest.mark.first, pytest.mark.slow]
SMALL = {"num_emitters": 2, "batch_size": 6}


def dms(number: float, array: np.ndarray, build=gloam.DMS) -> gloam.Algorithm:
    archive = gloam.GridArchive((6, 6), -2.0 - number, 2.0, f_min=-10 * number)
    preset = build(
        archive,
        array,
        sigma0=number,
        alpha=number,
        ceiling=1 + number,
        learning_rate=number / 100,
        restart=RestartEvery(int(20 * number)),
        num_init_points=12,
        num_empty_points=5,
        bounds=(-1 - number, 1 + number),
        **SMALL,
    )
    rarely_set = {"max_epochs": int(10 * number), "cutoff": number}
    discount = dataclasses.replace(preset.discount, **rarely_set)
    return gloam.Algorithm(preset.emitter, archive, discount)


def dms_paper(number: float, array: np.ndarray) -> gloam.Algorithm:
    return dms(number, array, gloam.DMS.paper)


def cma_mae(number: float, array: np.ndarray) -> gloam.CMAMAE:
    archive = gloam.GridArchive((6, 6), -2.0 - number, 2.0, f_min=-number)
    return gloam.CMAMAE(archive, array, sigma0=number, alpha=number, **SMALL)


def dds(number: float, array: np.ndarray) -> gloam_lab.DDS:
    centroids = np.random.default_rng(int(100 * number)).uniform(-2, 2, (20, 2))
    archive = gloam.CVTArchive(centroids, f_min=-number)
    return gloam_lab.DDS(archive, array, number, bandwidth=number, buffer_size=30, **SMALL)


def map_elites_line(number: float, array: np.ndarray) -> gloam.MAPElitesLine:
    archive = gloam.GridArchive((6, 6), -2.0, 2.0 + number, f_min=-100.0)
    return gloam.MAPElitesLine(archive, array, number, 2 * number, batch_size=12)


BUILDERS = [dms, dms_paper, cma_mae, dds, map_elites_line]


WITH_DMS = pytest.param(dms, marks=pytest.mark.release)


@contextmanager
def compilations():
    """The events of JAX's compiler, while it lasts."""
    heard: list[str] = []

    def listen(event, *args, **kwargs):
        if "compile" in event:
            heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield heard
    finally:
        jax.monitoring.clear_event_listeners()


def search(algorithm, seed):
    gloam.optimize(evaluate, algorithm, 2, seeds=[seed], progress=False)


def search_on_device(algorithm, seed):
    gloam.run(evaluate, algorithm, seeds=[seed], iterations=2, progress=False)


@pytest.mark.parametrize("build", BUILDERS)
def test_algorithms_with_other_numbers_have_the_same_program(build):
    """The key of a program is the static part and the shapes of the arrays."""
    (arrays, static), (others, other) = (
        partition(build(number, np.full(5, number)).for_programs()) for number in (0.3, 0.4)
    )
    assert static == other
    assert hash(static) == hash(other)
    described = [[(leaf.shape, leaf.dtype) for leaf in leaves] for leaves in (arrays, others)]
    assert described[0] == described[1]


@pytest.mark.parametrize("run", [pytest.param(search, marks=pytest.mark.release), search_on_device])
@pytest.mark.parametrize("build", [cma_mae, map_elites_line, WITH_DMS])
def test_a_second_search_compiles_nothing(build, run):
    run(build(0.3, np.zeros(5)), 1)
    other = build(0.4, np.ones(5))
    with compilations() as heard:
        run(other, 7)
        assert heard == []
        jax.jit(lambda x: x + 54321)(jnp.zeros(3)).block_until_ready()  # the listener does hear
        assert heard != []


@pytest.mark.parametrize(
    "build", [map_elites_line, pytest.param(cma_mae, marks=pytest.mark.release)]
)
def test_numbers_count_although_the_program_is_the_same(build):
    """A search in a process that has run others gives what it gives in a fresh one."""

    def found(number):
        search = gloam.Search(build(number, np.zeros(5)), 3)
        for _ in range(3):
            search.tell(*evaluate(search.ask()))
        return np.asarray(search.elites().store.objectives)

    alone = found(0.4)
    jax.clear_caches()
    np.testing.assert_array_equal(found(0.4), alone)
    assert not np.array_equal(found(0.3), alone)
    np.testing.assert_array_equal(found(0.4), alone)


def test_settings_stay_plain_numbers():
    algorithm = dms(0.3, np.zeros(5))
    assert (algorithm.discount.alpha, algorithm.discount.max_epochs) == (0.3, 3)
    assert type(algorithm.discount.alpha) is float
    assert type(algorithm.archive.f_min) is float
    assert type(algorithm.emitter.emitters[0].restart.iterations) is int
    assert Variation(np.zeros(3), 0.1).line_sigma is None
    assert Variation(np.zeros(3), 0.1, line_sigma=0.2).line_sigma == 0.2


def test_numbers_become_arrays_of_32_bits():
    arrays, _ = partition(dms(0.3, np.zeros(5)))
    assert {str(array.dtype) for array in arrays} == {"float32", "int32"}


class Scaled(Domain):
    """A user's domain: its code branches on its number, which must stay one."""

    scale: float
    traced: list = eqx.field(static=True)

    name = "scaled"
    x0 = jnp.zeros(5)

    def __call__(self, solutions):
        self.traced.append(self.scale)
        return evaluate(self.scale * solutions if self.scale > 1 else solutions)

    def archive(self):
        return gloam.GridArchive((6, 6), -2.0, 2.0)


def test_a_domain_counts_by_value_and_a_function_by_identity():
    traced: list[float] = []
    algorithm = map_elites_line(0.3, np.zeros(5))

    def traces(domain):
        del traced[:]
        FusedDriver(domain, algorithm, [0])  # traces the domain of a new program
        return len(traced)

    assert traces(Scaled(2.0, traced)) > 0
    assert traces(Scaled(2.0, traced)) == 0
    assert traces(Scaled(3.0, traced)) > 0

    def function(solutions):
        traced.append(1.0)
        return evaluate(solutions)

    assert traces(function) > 0
    assert traces(function) == 0
    assert traces(lambda x: function(x)) > 0


@pytest.mark.parametrize("pair", [(1, 1.0), (True, 1), (2.0, 3.0)])
def test_leaves_of_other_modules_are_compared_with_their_types(pair):
    one, other = (partition(Scaled(value, []))[1] for value in pair)  # pyright: ignore
    again = partition(Scaled(pair[0], []))[1]
    assert one == again
    assert hash(one) == hash(again)
    assert one != other


class Unhashable:
    __hash__ = None  # pyright: ignore

    def __eq__(self, other):
        return True


def test_what_cannot_be_hashed_counts_by_identity():
    one, other = Unhashable(), Unhashable()
    assert partition([one])[1] == partition([one])[1]
    assert partition([one])[1] != partition([other])[1]


class Incomparable:
    def __eq__(self, other):
        raise ValueError("as of arrays: the truth value is ambiguous")

    def __hash__(self):
        return 0


class Holds(eqx.Module):
    part: Incomparable = eqx.field(static=True)


def test_what_cannot_be_compared_is_another_program():
    first, second = (partition(Holds(Incomparable()))[1] for _ in range(2))
    assert first != second


def test_the_kernels_setting_is_another_program(monkeypatch):
    algorithm = map_elites_line(0.3, np.zeros(5))
    search_on_device(algorithm, 0)
    before = fused_driver._kept_programs.cache_info().misses
    search_on_device(algorithm, 0)
    assert fused_driver._kept_programs.cache_info().misses == before
    monkeypatch.setattr(gloam._tools.kernels, "usable", lambda: "otherwise")
    FusedDriver(evaluate, algorithm, [0])
    assert fused_driver._kept_programs.cache_info().misses == before + 1


def test_programs_are_not_kept_for_ever():
    algorithm = map_elites_line(0.3, np.zeros(5))

    def build():
        def domain(solutions):
            return evaluate(solutions)

        FusedDriver(domain, algorithm, [0])
        return weakref.ref(domain)

    first = build()
    for _ in range(fused_driver._KEPT):
        build()
    gc.collect()
    assert first() is None


def test_a_run_compiles_two_programs_and_nothing_else(tmp_path):
    fused_driver._kept_programs.cache_clear()
    jax.clear_caches()
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=8)
    with compilations() as heard:
        algorithm = gloam.DMS(domain.archive(), domain.x0, 0.5, **SMALL)
        gloam.run(domain, algorithm, 2, snapshots=[2], run_dir=tmp_path / "run", progress=False)
    # The first state and the iterations.
    assert len([event for event in heard if "backend_compile" in event]) == 2


def test_a_subclass_of_linear_projection_is_evaluated_as_it_says():
    class Lower(gloam.domains.LinearProjection):
        def __call__(self, solutions):
            objectives, measures = super().__call__(solutions)
            return objectives - 7.0, measures

    domain = Lower(2, solution_dim=6)
    algorithm = gloam.MAPElites(domain.archive(), domain.x0, 0.5, batch_size=10)
    with pytest.warns(UserWarning, match="f_min"):
        result = gloam.run(domain, algorithm, iterations=2, progress=False)
    assert (result.elites.objectives < -5.0).all()


def test_the_objectives_of_linear_projection_share_a_program():
    def searched(objective):
        domain = gloam.domains.LinearProjection(2, objective, solution_dim=6)
        algorithm = gloam.MAPElites(domain.archive(), domain.x0, 0.5, batch_size=10)
        result = gloam.run(domain, algorithm, seeds=2, iterations=3, progress=False)
        return domain, result.elites

    searched("sphere")
    with compilations() as heard:
        found = [searched(objective) for objective in ("rastrigin", "flat")]
    assert heard == []
    for domain, elites in found:
        objectives, measures = domain(elites.solutions)
        np.testing.assert_allclose(elites.objectives, objectives, rtol=1e-5)
        np.testing.assert_allclose(elites.measures, measures, rtol=1e-5)
