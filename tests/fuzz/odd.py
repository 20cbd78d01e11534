"""Odd arguments, and what is allowed to come of them."""

import datetime

import numpy as np
from hypothesis import strategies as st

from gloam.errors import EvaluationError

# What gloam documents. TypeError only for calls that do not fit a signature.
DOCUMENTED = (ValueError, EvaluationError)

ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    2**31,
    2**63,
    2**64,
    10**400,
    -(10**400),
    0.0,
    -0.0,
    0.5,
    1.5,
    1e-45,
    1e-300,
    1e39,
    1e308,
    -1e39,
    np.nan,
    np.inf,
    -np.inf,
    1j,
    "",
    "a",
    "1",
    "\udc80",
    "x\0y",
    "nowhere.npy",
    b"1",
    [],
    (),
    {},
    {"a": 1},
    [[]],
    [1],
    [1, 2],
    [1.0, np.nan],
    [[1, 2], [3]],
    [1, [2, [3]]],
    [None],
    ["a"],
    object(),
    object,
    len,
    range(3),
    slice(1),
    datetime.datetime(2020, 1, 1),
    np.float64(2.0),
    np.int8(3),
    np.zeros(0),
    np.zeros(5),
    np.zeros((2, 0)),
    np.ones((3, 2)),
    np.full(5, np.nan),
    np.full((4, 2), 1e39),
    np.full((4, 2), 3e38),
    np.full(5, 1e-45),
    np.zeros(5, complex),
    np.zeros(5, bool),
    np.array(["a"] * 5),
    np.array([None] * 5),
    np.zeros(5, "datetime64[s]"),
    np.ma.masked_array(np.ones(5), mask=True),
    np.zeros((2, 2, 2, 2)),
    np.array(3.0),
    np.zeros(5, np.int64),
    np.full(5, 2**63 - 1),
    np.zeros(5, np.float16),
]

odd_values = st.sampled_from(ODD)


def outcome(call):
    """What a call gives, or ``None`` where it raises what is documented."""
    try:
        return call()
    except DOCUMENTED as error:
        text = str(error)
    # The words of gloam, not of a dependency.
    assert "expected" in text, text
    assert len(text) < 2000, text
    return None
