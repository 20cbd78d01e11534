"""Two drivers, one step: they agree within float32, and each repeats itself bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np

import gloam
from gloam.runs.fused_driver import FusedDriver
from gloam.searches import search as ask_tell
from tests.helpers import assert_same_bits

from tests.problems import evaluate

# Over these iterations rounding has not yet changed a ranking or a cell; later, trajectories of
# the drivers part, as chaotic systems do, and agree only in distribution.
FEW = 4


def search_for(algorithm, seed, iterations):
    search = gloam.Search(algorithm, seed)
    for _ in range(iterations):
        search.tell(*evaluate(search.ask()))
    return search


def test_fused_equals_ask_tell_over_the_first_iterations(algorithm):
    fused = gloam.run(evaluate, algorithm, seeds=[3], iterations=FEW, progress=False)
    search = search_for(algorithm, 3, FEW)
    for name in ("objectives", "solutions", "measures"):
        np.testing.assert_allclose(
            getattr(fused.elites.store, name), getattr(search.elites.store, name), atol=1e-4
        )
    assert np.isclose(fused.metrics["qd_score"].iloc[-1], search.metrics["qd_score"], atol=1e-3)


def test_one_seed_of_many_equals_the_seed_alone(algorithm):
    many = gloam.run(evaluate, algorithm, seeds=[5, 3], iterations=FEW, progress=False)
    alone = gloam.run(evaluate, algorithm, seeds=[3], iterations=FEW, progress=False)
    np.testing.assert_allclose(
        list(many.elites_by_seed.values())[1].store.objectives,
        alone.elites.store.objectives,
        atol=1e-4,
    )
    assert not np.array_equal(
        many.elites.store.objectives, list(many.elites_by_seed.values())[1].store.objectives
    )


def test_a_seed_repeats_bit_for_bit_whatever_the_stretches(dms):
    def after(*stretches):
        driver = FusedDriver(evaluate, dms, [3, 4])
        driver.start()
        for length in stretches:
            driver.advance(length)
        return driver.elites()

    for one, other in zip(after(30), after(1, 7, 2, 20), strict=True):
        assert_same_bits(one, other)


def test_ask_tell_repeats_bit_for_bit(algorithm):
    assert_same_bits(search_for(algorithm, 1, 6).elites, search_for(algorithm, 1, 6).elites)


def test_nothing_compiles_after_the_first_stretch(dms):
    driver = FusedDriver(evaluate, dms, [0, 1])
    driver.start()
    driver.advance(1)
    traces = []

    def listen(event, *args, **kwargs):
        if "compile" in event:
            traces.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for length in (1, 5, 3):
            driver.advance(length)
        assert traces == []
        # The listener does hear compilations.
        jax.jit(lambda x: x + 12345)(jnp.zeros(3)).block_until_ready()
        assert traces != []
    finally:
        jax.monitoring.clear_event_listeners()


def test_ask_and_tell_compile_once(dms):
    ask_tell.search_programs.cache_clear()  # other tests have used them otherwise
    search = search_for(dms, 0, 3)
    assert search._ask._cache_size() == 1
    assert search._tell._cache_size() == 1
