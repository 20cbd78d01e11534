"""Aimed moves: weights against a solver of NumPy, and combinations worked out by hand."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.archives.store import filled_store
from gloam.discounts import NoDiscount
from gloam.emitters import AimedMoves
from gloam.emitters.aimed_moves import _RIDGE, _weights
from gloam.records import Targets

SOL, BATCH = 3, 8
MOVES = AimedMoves(np.zeros(SOL), 0.5, iso_sigma=1e-6, batch_size=BATCH)
NONE = jnp.zeros((0, SOL))
RANDOM_MEASURES = np.random.default_rng(0).normal(size=(5, 2))


def ridge_weights(offsets: np.ndarray) -> np.ndarray:
    """Weights of the ridge, by a solver."""
    products = offsets @ offsets.T
    ridge = _RIDGE * np.diagonal(products).mean()
    weights = np.linalg.solve(products + ridge * np.eye(len(products)), np.ones(len(products)))
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("measure_dim", "num_near"), [(1, 4), (2, 8), (2, 32), (5, 6), (6, 8), (10, 4), (50, 8)]
)
def test_of_few_elites_or_measures_weights_are_those_of_the_ridge(measure_dim, num_near):
    # Conjugate gradients need as many steps as there are elites, or measures and one more.
    random = np.random.default_rng(measure_dim)
    compute = jax.jit(_weights)
    for _ in range(5):
        offsets = random.normal(size=(num_near, measure_dim)) * 10.0 ** random.uniform(-3, 3)
        is_near = np.arange(num_near) < random.integers(2, num_near + 1)
        products = jnp.asarray(offsets @ offsets.T, jnp.float32)
        found = np.asarray(compute(products, jnp.asarray(is_near)))
        expected = ridge_weights(offsets[is_near])
        np.testing.assert_allclose(found[is_near], expected, rtol=2e-3, atol=2e-3)
        assert not found[~is_near].any()
        assert found.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("measure_dim", "largest"), [(2, 1e-3), (5, 1e-3), (10, 0.02), (50, 0.3)])
def test_combinations_are_much_nearer_to_the_target_than_the_nearest_elite(measure_dim, largest):
    random = np.random.default_rng(measure_dim)
    compute = jax.jit(_weights)
    for _ in range(10):
        offsets = random.normal(size=(32, measure_dim)) * 10.0 ** random.uniform(-3, 3)
        products = jnp.asarray(offsets @ offsets.T, jnp.float32)
        found = np.asarray(compute(products, jnp.ones(32, bool)), float)
        assert found.sum() == pytest.approx(1, abs=1e-5)
        nearest = np.linalg.norm(offsets, axis=1).min()
        distance = np.linalg.norm(found @ offsets)
        assert distance < largest * nearest
        # About as near as the exact weights, of which 32 elites in 10 measures need more steps.
        exact = np.linalg.norm(ridge_weights(offsets) @ offsets)
        assert distance < 1.05 * exact + 0.01 * nearest


@eqx.filter_jit
def ask(emitter, key, solutions, measures, are_elites):
    """Ask with a target at the origin and these elites near to it."""

    def draw(number, *, num_near=1, near_elites=False, key):
        assert near_elites

        def tiled(rows):
            return jnp.broadcast_to(rows, (number, *rows.shape))

        cells, are_empty = jnp.zeros(number, jnp.int32), jnp.ones(number, bool)
        rows = tiled(solutions), tiled(measures), tiled(are_elites)
        return Targets(cells, are_empty, jnp.zeros((number, 2)), *rows)

    return emitter.ask(None, NONE, key=key, targets=draw).solutions


def combined(solutions, measures, number: int, emitter=MOVES) -> np.ndarray:
    """The solutions from elites of which the first ``number`` exist."""
    rows = jnp.asarray(solutions, jnp.float32), jnp.asarray(measures, jnp.float32)
    return np.asarray(ask(emitter, jax.random.key(3), *rows, jnp.arange(len(rows[0])) < number))


ELITES = np.array([[1, 0, 5], [3, 4, 5], [9, 9, 9]])
# Two elites on both sides of the target, one of them twice as far away.
MEASURES = np.array([[1, 1], [-2, -2], [4, 0]])


def test_two_elites_on_both_sides_of_the_target():
    # Weights of 2/3 and 1/3, and always two elites or more.
    expected = (2 * ELITES[0] + ELITES[1]) / 3
    found = combined(ELITES, MEASURES, 2)
    np.testing.assert_allclose(found, np.tile(expected, (BATCH, 1)), atol=5e-3)


def test_without_a_second_elite_there_is_nothing_to_combine():
    np.testing.assert_allclose(combined(ELITES, MEASURES, 1), [ELITES[0]] * BATCH, atol=1e-4)
    # Those that stand in for elites are all the same.
    x0 = np.full((3, SOL), 7.0)
    np.testing.assert_allclose(combined(x0, np.zeros((3, 2)), 0), [x0[0]] * BATCH, atol=1e-4)


def test_elites_at_the_target_are_averaged():
    found = combined(ELITES, np.zeros((3, 2)), 2)
    np.testing.assert_allclose(found, [ELITES[:2].mean(axis=0)] * BATCH, atol=1e-4)


@eqx.filter_jit
def first_variables(emitter, key):
    """First variables with 108 targets, of which all elites of the i-th have the value i there."""

    def draw(number, *, num_near=1, near_elites=False, key):
        values = jnp.arange(108.0)[:, None, None]
        none = jnp.zeros(108, jnp.int32)
        measures = jax.random.normal(key, (108, 4, 2))
        elites = jnp.broadcast_to(values, (108, 4, SOL)), measures, jnp.ones((108, 4), bool)
        return Targets(none, none == 0, jnp.zeros((108, 2)), *elites)

    return emitter.ask(None, NONE, key=key, targets=draw).solutions[:, 0]


def test_solutions_take_turns_at_the_targets_from_a_random_one():
    begins = []
    for seed in range(20):
        found = np.rint(first_variables(MOVES, jax.random.key(seed))).astype(int)
        begins.append(found[0])
        np.testing.assert_array_equal(found, (found[0] + np.arange(BATCH)) % 108)
    # Twenty of 108 are as good as never all in one third.
    assert max(begins) >= 72
    assert min(begins) < 36
    # Five solutions or none more for each of the targets, however many parts share them.
    many = AimedMoves(np.zeros(SOL), 0.5, iso_sigma=1e-6, batch_size=540)
    found = np.rint(first_variables(many, jax.random.key(0))).astype(int)
    np.testing.assert_array_equal(np.bincount(found), np.full(108, 5))


def test_choices_are_those_of_two_random_elites_near_the_target():
    space = gloam.Space(kinds=gloam.Categorical([0, 1, 2, 3, 4], shape=(20,)))
    emitter = AimedMoves(space, batch_size=60)
    solutions = np.repeat(np.arange(5)[:, None], 20, axis=1)
    found = combined(solutions, RANDOM_MEASURES, 3, emitter)
    counts = np.stack([(found == kind).sum(axis=1) for kind in range(5)], axis=1)
    # Of 20 choices a third of one changes on average, and two elites have the others.
    assert (np.sort(counts, axis=1)[:, -2:].sum(axis=1) >= 17).all()
    assert set(counts.argmax(axis=1)) == {0, 1, 2}
    assert (counts[:, :3].max(axis=1) < 17).any()


def test_solutions_stay_inside_the_bounds():
    boxed = AimedMoves(np.zeros(SOL), iso_sigma=0.01, batch_size=BATCH, bounds=(-2, 3))
    found = combined(ELITES, MEASURES, 2, boxed)
    assert found.min() >= -2
    assert found.max() == 3.0  # the last variable would be 5


def linear(solutions):
    return jnp.zeros(len(solutions)), solutions[:, :2]


def test_solutions_are_in_the_cells_where_measures_are_linear():
    archive = gloam.GridArchive((6, 6), -3.0, 3.0)
    emitter = AimedMoves(np.zeros(SOL), 0.5, iso_sigma=1e-3, batch_size=36)
    used = gloam.Algorithm(emitter, archive, NoDiscount())
    state = jax.jit(partial(step.init, used))(root_key(0))
    # Elites in the middle and in the corners of the grid.
    points = np.array([[-2.5, -2.5], [-2.5, 2.5], [2.5, -2.5], [2.5, 2.5], [0.5, 0.5]], np.float32)
    solutions = np.concatenate([points, np.ones((5, 1), np.float32)], axis=1)
    store = filled_store(archive, solutions, np.zeros(5), points, archive.index_of(points), {})
    state = eqx.tree_at(lambda s: s.store, state, store)
    after = jax.jit(lambda state: step.step(used, linear, state)[0])(state)
    assert int(after.store.occupied.sum()) >= 9
    # Weights have the sum 1, also those that extrapolate.
    elites = np.asarray(after.store.solutions)[np.asarray(after.store.occupied)]
    np.testing.assert_allclose(elites[:, 2], 1.0, atol=0.01)


def test_parts_are_smaller_batches():
    emitter = AimedMoves(np.zeros(SOL), 0.5, batch_size=540)
    assert (emitter.num_parts, emitter.part(15).num_solutions) == (15, 36)
    assert (emitter.elites_to_ask, emitter.num_elites_to_adapt) == ((), 0)
    wanted = emitter.targets_to_share
    assert wanted.near_elites
    assert emitter.part(540).targets_to_share.number == 1
