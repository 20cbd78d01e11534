"""Both drivers use one step: they agree within float32, and each repeats itself bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.runs.fused_driver import FusedDriver
from gloam.searches import search as ask_tell
from tests.helpers import assert_same_bits
from tests.problems import ARM, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

# Over these iterations rounding has not yet changed a ranking or a cell. Later the trajectories of
# the drivers diverge, as chaotic systems do, and agree only in distribution.
FEW = 4


def assert_close(one, other):
    for name in ("objectives", "solutions", "measures"):
        ours, theirs = (getattr(elites.store, name) for elites in (one, other))
        # The ridge of aimed moves multiplies rounding by a thousand.
        np.testing.assert_allclose(ours, theirs, rtol=5e-4, atol=1e-4)


def advanced(search, iterations):
    for _ in range(iterations):
        search.tell(*ARM(search.ask()))
    return search


def run(algorithm, seeds):
    return gloam.run(ARM, algorithm, seeds=seeds, iterations=FEW, progress=False)


def test_the_drivers_agree_over_the_first_iterations(algorithm):
    fused = run(algorithm, [5, 3])
    search = advanced(gloam.Search(algorithm, 3), FEW)
    assert_close(fused.elites_by_seed[3], search.elites())
    assert np.isclose(fused.metrics["qd_score"].iloc[-1], search.metrics()["qd_score"], atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "map-elites-line",
        pytest.param("dms", marks=pytest.mark.release),
    ],
)
def test_the_number_of_seeds_changes_none_of_them_over_the_first_iterations(name):
    many, alone = run(small(name), [5, 3]), run(small(name), [3])
    assert_close(many.elites_by_seed[3], alone.elites)
    assert not np.array_equal(many.elites.store.objectives, alone.elites.store.objectives)


def test_a_seed_repeats_bit_for_bit_whatever_the_stretches(dms):
    def after(*stretches):
        driver = FusedDriver(ARM, dms, [5, 3])
        driver.start()
        for length in stretches:
            driver.advance(length)
        return driver.elites()

    for one, other in zip(after(30), after(1, 7, 2, 20), strict=True):
        assert_same_bits(one, other)


def test_metrics_are_those_of_every_logged_iteration_whatever_the_stretches(dms):
    def rows(*stretches):
        driver = FusedDriver(ARM, dms, [5, 3])
        driver.start()
        found = {}
        for length in stretches:
            driver.advance(length, log_every=4)
            found |= {rows[0]["iteration"]: rows for rows in driver.metrics()}
        return found

    whole, parts = rows(30), rows(*[1] * 30)
    assert list(whole) == [4, 8, 12, 16, 20, 24, 28, 30]
    for iteration, row in whole.items():
        pd.testing.assert_frame_equal(pd.DataFrame(row), pd.DataFrame(parts[iteration]))
        assert [one["evaluations"] for one in row] == [iteration * dms.emitter.num_solutions] * 2


def test_ask_tell_repeats_bit_for_bit(algorithm):
    one, other = (advanced(gloam.Search(algorithm, 1), 6).elites() for _ in range(2))
    assert_same_bits(one, other)


def test_nothing_compiles_after_the_first_stretch(dms):
    driver = FusedDriver(ARM, dms, [5, 3])
    driver.start()
    driver.advance(1)
    search = advanced(gloam.Search(dms, 0), 1)
    sizes = ask_tell._ask._cache_size(), ask_tell._tell._cache_size()
    events = []

    def listen(event, *args, **kwargs):
        if "compile" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for length in (1, 5, 3):
            driver.advance(length)
        advanced(search, 3)
        assert events == []
        assert sizes == (ask_tell._ask._cache_size(), ask_tell._tell._cache_size())
        # The listener does hear compilations.
        jax.jit(lambda x: x + 12345)(jnp.zeros(3)).block_until_ready()
        assert events != []
    finally:
        jax.monitoring.clear_event_listeners()
