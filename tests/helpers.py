"""Helpers that several test files share."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.discounts import DiscountModel
from gloam.records import DrawsTargets, Feedback, MeasureSpace, Targets
from gloam_lab import Decoder


def refused(message: str, *values: object):
    """A ValueError whose message begins with ``message`` and names the values later, in order."""
    pattern = ".*".join(re.escape(str(part)) for part in (message, *values))
    return pytest.raises(ValueError, match=f"(?s)^{pattern}")


def feedback(improvements, accepted, valid, iteration) -> Feedback:
    """Feedback for emitters that do not look at filled cells: there are none."""
    return Feedback(improvements, accepted, jnp.zeros_like(accepted), valid, iteration)


def targets_near(elites) -> DrawsTargets:
    """Draw empty cells among the first nine; the elites near to each are random ones of these."""

    def draw(number, *, num_near=1, key, **_):
        key_cells, key_elites, key_measures = jax.random.split(key, 3)
        places = jax.random.randint(key_elites, (number, num_near), 0, len(elites))
        return Targets(
            cells=jax.random.randint(key_cells, (number,), 0, 9),
            are_empty=jnp.ones(number, bool),
            centers=jnp.zeros((number, 2)),
            solutions=jnp.asarray(elites)[places],
            measures=jax.random.normal(key_measures, (number, num_near, 2)),
            are_elites=jnp.ones((number, num_near), bool),
        )

    return draw


def assert_same_bits(one, other) -> None:
    """Two pytrees, or two sets of elites, hold the same numbers; random keys by their words."""
    found, wanted = map(_arrays, (one, other))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def small_decoder(seed: int = 0) -> Decoder:
    """A decoder of random pictures of 8 x 8 pixels from latents of 3 numbers."""
    shapes = {"hidden": (3, 5), "maps": (5, 2 * 2 * 3), "middle": (3, 3, 3, 8)}
    shapes |= {"pixels": (3, 3, 2, 4)}
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = rng.normal(0, 1, shape)
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, shape[-1])
    return Decoder(tensors)


def _arrays(tree) -> list:
    tree = tree.store if isinstance(tree, gloam.Elites) else tree
    return [_raw(leaf) for leaf in jax.tree.leaves(tree) if not callable(leaf)]


def _raw(leaf):
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def paper_model(lower, upper, *, shape: tuple[int, ...] = (), **options) -> DiscountModel:
    """A discount model with the paper's settings, for measures within these bounds."""
    low, high = (jnp.asarray(bound, jnp.float32) for bound in (lower, upper))
    paper = {
        "alpha": 0.1,
        "floor": 0.0,
        "ceiling": 1.0,
        "num_empty_points": 100,
        "learning_rate": 1e-3,
    }
    space = MeasureSpace(low, high, shape or low.shape)
    return DiscountModel(**(paper | {"space": space} | options))
