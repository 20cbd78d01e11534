"""Helpers that several test files share."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.records import Feedback


def refused(message: str):
    """A ValueError whose message begins with ``message``."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}")


def feedback(improvements, improved, valid, iteration) -> Feedback:
    """Feedback for emitters that do not look at gains: there are none."""
    gains = jnp.zeros_like(improvements)
    return Feedback(improvements, improved, gains, jnp.zeros_like(improved), valid, iteration)


def assert_same_bits(one, other) -> None:
    """Two pytrees, or two sets of elites, hold the same numbers; random keys by their words."""
    found, wanted = map(_arrays, (one, other))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def _arrays(tree) -> list:
    tree = tree.store if isinstance(tree, gloam.Elites) else tree
    return [_raw(leaf) for leaf in jax.tree.leaves(tree) if not callable(leaf)]


def _raw(leaf):
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
