"""Objectives below f_min: counted in the metrics, and one warning that says what to set."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.runs.fused_driver import FusedDriver
from tests.problems import BATCH

pytestmark = pytest.mark.slow  # searches of its own are compiled


def algorithm(f_min=0.0):
    """Thresholds have f_min as their floor, as the discount model of the paper has."""
    archive = gloam.GridArchive((8, 8), -2.0, 2.0, f_min=f_min)
    return gloam.CMAMAE(archive, np.zeros(5), 0.3, num_emitters=3, batch_size=10)


class Shifted(eqx.Module):
    """An evaluation for NumPy and JAX whose objectives lie just below ``offset``."""

    offset: jax.Array

    def __call__(self, solutions):
        return self.offset - (solutions**2).sum(axis=1) / 20.0, solutions[:, :2]


LOW, HIGH = Shifted(jnp.float32(-1.0)), Shifted(jnp.float32(2.0))  # one program


def messages(records):
    return [str(record.message) for record in records if "f_min" in str(record.message)]


def test_tell_warns_once_and_names_the_lowest_objective():
    search = gloam.Search(algorithm(), seed=1)
    search.ask()
    objectives = np.linspace(-7.25, -0.5, BATCH)
    search.tell(objectives, np.zeros((BATCH, 2)))
    with pytest.warns(UserWarning, match=re.escape("got -7.25")) as records:
        search.ask()
    assert "Set f_min=... of the archive" in messages(records)[0]
    assert records[0].filename == __file__
    assert search.metrics()["below_f_min"] == BATCH
    search.tell(objectives, np.zeros((BATCH, 2)))
    search.ask()  # a second warning would be an error


def test_a_minority_below_f_min_is_counted_without_a_warning():
    search = gloam.Search(algorithm(), seed=1)
    search.ask()
    objectives = np.where(np.arange(BATCH) < 14, -1.0, 1.0)
    objectives[-1] = np.nan
    search.tell(objectives, np.zeros((BATCH, 2)))
    assert search.metrics()["below_f_min"] == 14
    assert float(search.state.low.lowest) == -1.0
    search.ask()
    # Failed rows are on neither side: 14 of 27 valid objectives are a majority.
    objectives[-3:] = np.nan
    search.tell(objectives, np.zeros((BATCH, 2)))
    with pytest.warns(UserWarning, match="f_min"):
        search.ask()


def test_objectives_found_on_the_device_warn_at_the_next_ask():
    archive = gloam.CVTArchive(np.eye(3), metric="cosine", f_min=0.0)
    search = gloam.Search(gloam.MAPElites(archive, np.ones(3), 0.1, batch_size=4), seed=1)
    search.ask()
    search.tell(None, -np.ones((4, 3)))
    with pytest.warns(UserWarning, match=re.escape("got -0.57735")):
        search.ask()


def test_a_run_on_the_device_warns_once():
    with pytest.warns(UserWarning, match="f_min") as records:
        result = gloam.run(LOW, algorithm(), seeds=2, iterations=6, log_every=2, progress=False)
    assert len(messages(records)) == 1
    assert records[0].filename == __file__
    assert (result.metrics["below_f_min"] == BATCH).all()


def test_the_warning_does_not_depend_on_where_stretches_end():
    # Only the third batch is low; a driver that looked at the last iteration alone would miss it.
    driver = FusedDriver(HIGH, algorithm(), [0, 1])
    driver.start()
    driver.advance(1)
    state = driver.checkpoint()
    low = type(state.low)(state.low.lowest * 0 - 3.0, state.low.batches + 1)
    driver._state = eqx.tree_at(lambda state: state.low, state, low)
    with pytest.warns(UserWarning, match="got -3"):
        driver.advance(2)
    assert [row["below_f_min"] for row in driver.metrics()[-1]] == [0, 0]


def test_optimize_warns_once():
    with pytest.warns(UserWarning, match="f_min") as records:
        result = gloam.optimize(LOW, algorithm(), 4, log_every=1, progress=False)
    assert len(messages(records)) == 1
    assert (result.metrics["below_f_min"] == BATCH).all()


def test_objectives_at_f_min_and_above_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gloam.run(HIGH, algorithm(f_min=-1.0), seeds=2, iterations=4, progress=False)
    assert (result.metrics["below_f_min"] == 0).all()


def test_an_f_min_that_was_given_is_warned_of_although_the_search_does_not_need_it():
    archive = gloam.GridArchive((8, 8), -2.0, 2.0, f_min=0.0)
    search = gloam.Search(gloam.MAPElites(archive, np.zeros(5), 0.3, batch_size=BATCH), seed=1)
    search.ask()
    search.tell(-np.ones(BATCH), np.zeros((BATCH, 2)))
    with pytest.warns(UserWarning, match="archive's f_min = 0, got -1.*lower the QD score"):
        search.ask()
