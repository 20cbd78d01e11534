"""`Search.tell` with odd results: a documented error that changes nothing, or a sound state."""

import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gloam

from .odd import odd_values, outcome

BATCH = 6


def search_of(kind):
    fields = {"number": (), "count": jax.ShapeDtypeStruct((), np.int32)}
    archive = gloam.GridArchive((4, 4), -1, 1, fields=fields)
    cma = {"num_emitters": 2, "batch_size": 3}
    if kind == "dms":
        algorithm = gloam.DMS.paper(
            archive, np.zeros(4), 0.3, num_init_points=4, num_empty_points=3, **cma
        )
    else:
        algorithm = gloam.DDS(archive, np.zeros(4), 0.3, bandwidth=0.5, buffer_size=8, **cma)
    return gloam.Search(algorithm, 3)


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


@pytest.fixture(scope="module", params=["dms", "dds"])
def search(request):
    return search_of(request.param)


@pytest.mark.filterwarnings("ignore:objectives. expected values at or above:UserWarning")
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
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
