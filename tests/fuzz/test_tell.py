"""`Search.tell` with odd results: a documented error that changes nothing, or a sound state."""

import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gloam
import gloam_lab

from .odd import odd_values, outcome

BATCH = 10


def search_of(kind):
    fields = {"number": (), "count": jax.ShapeDtypeStruct((), np.int32)}
    archive = gloam.GridArchive((4, 4), -1, 1, fields=fields)
    x0, cma = np.zeros(4), {"num_emitters": 2, "batch_size": 5}
    few = {"num_init_points": 4, "num_empty_points": 3}
    builders = {
        "dms": lambda: gloam.DMS(archive, x0, 0.3, **cma, **few),
        "dms-paper": lambda: gloam.DMS.paper(archive, x0, 0.3, **few, **cma),
        "cma-mae": lambda: gloam.CMAMAE(archive, x0, 0.3, **cma),
        "dds": lambda: gloam_lab.DDS(archive, x0, 0.3, bandwidth=0.5, buffer_size=8, **cma),
    }
    return gloam.Search(builders[kind](), 3)


extremes = st.sampled_from([0.0, 1.0, -1.0, 1e-45, 1e30, -3e38, 3e38, 1e39, np.nan, np.inf])
plain = st.floats(-2, 2, width=32)


@st.composite
def rows(draw, shape):
    values = draw(
        st.lists(
            st.one_of(plain, extremes), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
        )
    )
    dtype = draw(st.sampled_from([np.float64, np.float32, np.float16]))
    with np.errstate(all="ignore"):
        return np.array(values).reshape(shape).astype(dtype)


def assert_finite(search):
    state = search.state
    for leaf in jax.tree.leaves((state.emitter, state.discount, state.low)):
        assert np.isfinite(leaf).all()
    elites = search.elites()
    for part in (elites.solutions, elites.objectives, elites.flat_measures):
        assert np.isfinite(part).all()
    stats = search.metrics()
    assert np.isfinite([stats["qd_score"], stats["coverage"]]).all()


@pytest.fixture(scope="module", params=["cma-mae", "dms", "dds"])
def search(request):
    return search_of(request.param)


@pytest.mark.filterwarnings("ignore:objectives. expected values at or above:UserWarning")
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_tell(search, data):
    arguments = {
        "objectives": data.draw(rows((BATCH,))),
        "measures": data.draw(rows((BATCH, 2))),
        "number": np.zeros(BATCH),
        "count": np.arange(BATCH),
        "cells": None,
    }
    for name in data.draw(st.lists(st.sampled_from(sorted(arguments)), max_size=2)):
        arguments[name] = data.draw(odd_values)
    asked, before = search.ask(), search.iteration
    told = []

    def call():
        search.tell(**arguments)
        told.append(True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        outcome(call)
    if told:
        assert search.iteration == before + 1
        assert_finite(search)
    else:
        assert search.iteration == before
        np.testing.assert_array_equal(search.ask(), asked)


@pytest.mark.filterwarnings("ignore:objectives. expected values at or above:UserWarning")
def test_huge_objectives_and_measures_leave_the_state_finite(search):
    for _ in range(2):
        search.ask()
        objectives = np.ones(BATCH)
        objectives[:3] = 3e38, 1e30, 1e20
        measures = np.linspace(-3e38, 3e38, 2 * BATCH).reshape(BATCH, 2)
        search.tell(objectives, measures, number=np.zeros(BATCH), count=np.arange(BATCH))
        assert search.metrics()["failed"] == 1
        assert_finite(search)
