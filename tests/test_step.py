"""One iteration: what it keeps, what it masks, and where its randomness comes from."""

from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.algorithms import DMS, Algorithm
from gloam.archives import GridArchive
from gloam.discounts import MLP, Thresholds
from gloam.emitters import Emitter, Variation
from gloam.records import Feedback
from gloam.step import add, ask, init, masked_batch, step, tell
from tests.helpers import feedback

EMITTERS, EACH, SOL = 3, 8, 6
BATCH = EMITTERS * EACH
EMPTY = 5
KEY = jax.random.key(11)

traces = Counter()


def compiled(function):
    def traced(*arguments):
        traces[function.__name__] += 1
        return function(*arguments)

    return eqx.filter_jit(traced)


ask_jit, init_jit, tell_jit = compiled(ask), compiled(init), compiled(tell)


def evaluate(solutions):
    """An objective that no two random solutions share, and two of the numbers as measures."""
    return 1.0 - jnp.mean(jnp.square(solutions), axis=1), solutions[:, :2], {}


evaluate_jit = jax.jit(evaluate)
index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))
discount_at = eqx.filter_jit(lambda model, state, measures: model.discount(state, measures))


def evaluated(proposal):
    """The evaluation of a proposal, on the host."""
    objectives, measures, fields = evaluate_jit(proposal.solutions)
    return np.array(objectives), np.array(measures), fields


class Told(eqx.Module):
    """State of a `Recorder`: that of the emitter inside, and what it was told last."""

    inner: Any
    feedback: Feedback


class Recorder(Emitter):
    """An emitter that remembers what it was told to adapt to."""

    inner: Emitter
    x0: jax.Array

    @property
    def num_solutions(self):
        return self.inner.num_solutions

    @property
    def elites_to_ask(self):
        return self.inner.elites_to_ask

    @property
    def num_elites_to_adapt(self):
        return self.inner.num_elites_to_adapt

    def init(self, x0=None):
        no, zero = jnp.zeros(BATCH, bool), jnp.zeros((), jnp.int32)
        return Told(self.inner.init(x0), feedback(jnp.zeros(BATCH), no, no, zero))

    def ask(self, state, elites, *, key, targets=None):
        return self.inner.ask(state.inner, elites, key=key, targets=targets)

    def adapt(self, state, proposal, feedback, elites):
        return Told(self.inner.adapt(state.inner, proposal, feedback, elites), feedback)

    def metrics(self, state):
        return self.inner.metrics(state.inner)


@pytest.fixture(scope="module")
def algorithm():
    """Discount Model Search, with an emitter that can be asked what it was told."""
    dms = DMS.paper(
        GridArchive((8, 8), -1.0, 1.0),
        np.zeros(SOL),
        0.5,
        num_emitters=EMITTERS,
        batch_size=EACH,
        num_init_points=20,
        num_empty_points=EMPTY,
        network=MLP(2, (16,)),
    )
    return Algorithm(Recorder(dms.emitter, dms.emitter.x0), dms.archive, dms.discount)


@pytest.fixture(scope="module")
def start(algorithm):
    return init_jit(algorithm, KEY)


@pytest.fixture(scope="module")
def later(algorithm, start):
    """The state after three iterations."""
    return advance(algorithm, start, 3)


def advance(algorithm, state, iterations):
    for _ in range(iterations):
        proposal = ask_jit(algorithm, state)
        state, _ = tell_jit(algorithm, state, proposal, evaluated(proposal))
    return state


def host(tree):
    """The tree with NumPy arrays, keys as their words."""

    def plain(leaf):
        typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if typed else leaf)

    return jax.tree.map(plain, tree)


def bits(tree):
    return jax.tree.leaves(host(tree))


def occupied(state):
    return state.store.objectives > -np.inf


def identical(a, b):
    for left, right in zip(bits(a), bits(b), strict=True):
        np.testing.assert_array_equal(left, right)


def assert_finite(state):
    """Nothing but the objectives of empty cells, which are minus infinity, may be infinite."""
    objectives = state.store.objectives
    assert (np.isfinite(objectives) | (objectives == -np.inf)).all()
    rest = eqx.tree_at(lambda s: s.store.objectives, state, np.zeros(1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rest))


# Asking


def test_asking_twice_gives_the_same_answer(algorithm, later):
    identical(ask_jit(algorithm, later), ask_jit(algorithm, later))


def test_a_batch_is_all_solutions_of_all_emitters(algorithm, start):
    assert ask_jit(algorithm, start).solutions.shape == (BATCH, SOL)


def test_iterations_are_counted(start, later):
    assert start.iteration == 0
    assert later.iteration == 3
    assert later.failed == 0
    identical(start.key, later.key)


def test_states_that_differ_in_their_iteration_alone_ask_differently(algorithm, start):
    other = eqx.tree_at(lambda s: s.iteration, start, jnp.asarray(1, jnp.int32))
    first, second = ask_jit(algorithm, start), ask_jit(algorithm, other)
    # Not one number is drawn again.
    assert not np.isin(first.aux, second.aux).any()


def test_draws_depend_on_the_root_key_and_the_iteration_alone(algorithm, start, later):
    moved = eqx.tree_at(lambda s: s.iteration, start, later.iteration)
    identical(ask_jit(algorithm, moved).aux, ask_jit(algorithm, later).aux)
    other_root = eqx.tree_at(lambda s: s.key, later, jax.random.key(12))
    drawn = ask_jit(algorithm, other_root).aux
    assert not np.isin(drawn, ask_jit(algorithm, later).aux).any()


def test_empty_cells_for_training_are_drawn_anew_in_each_iteration(algorithm, start):
    proposal = ask_jit(algorithm, start)
    other = eqx.tree_at(lambda s: s.iteration, start, jnp.asarray(1, jnp.int32))
    centers = []
    for state in (start, start, other):
        _, report = host(tell_jit(algorithm, state, proposal, evaluated(proposal)))
        centers.append(report.fit.points[BATCH:])
    np.testing.assert_array_equal(centers[0], centers[1])
    assert (centers[0] != centers[2]).any()


# Telling


def test_the_archive_keeps_the_best_solution_of_each_cell(algorithm, start):
    proposal = ask_jit(algorithm, start)
    objectives, measures, fields = evaluated(proposal)
    state, report = host(tell_jit(algorithm, start, proposal, (objectives, measures, fields)))
    solutions = np.asarray(proposal.solutions)
    cells = np.asarray(index_of(algorithm.archive, measures))
    filled = np.unique(cells)
    assert report.unique_cells == len(filled) < BATCH
    np.testing.assert_array_equal(np.flatnonzero(occupied(state)), filled)
    for cell in filled:
        rows = np.flatnonzero(cells == cell)
        best = rows[np.argmax(objectives[rows])]
        assert state.store.objectives[cell] == objectives[best]
        np.testing.assert_array_equal(state.store.solutions[cell], solutions[best])
        np.testing.assert_array_equal(state.store.measures[cell], measures[best])


def test_training_sees_the_batch_and_the_centres_of_cells_that_are_still_empty(algorithm, later):
    proposal = ask_jit(algorithm, later)
    objectives, measures, fields = evaluated(proposal)
    state, report = host(tell_jit(algorithm, later, proposal, (objectives, measures, fields)))
    fit = report.fit
    np.testing.assert_array_equal(fit.points[:BATCH], measures)
    assert fit.is_trained.all()
    drawn = np.asarray(index_of(algorithm.archive, fit.points[BATCH:]))
    assert len(np.unique(drawn)) == EMPTY
    assert not occupied(state)[drawn].any()
    np.testing.assert_array_equal(fit.targets[BATCH:], np.zeros(EMPTY))
    # Equation 1 with the model as it was before the iteration, alpha 0.1; a few roundings.
    before = np.asarray(discount_at(algorithm.discount, later.discount, measures))
    raised = np.where(objectives > before, 0.9 * before + 0.1 * objectives, before)
    np.testing.assert_allclose(fit.targets[:BATCH], raised, rtol=0, atol=1e-6)
    assert 1 <= fit.epochs <= 5
    for old, new in zip(bits(later.discount), bits(state.discount), strict=True):
        assert (old != new).any()


def test_improvements_are_measured_by_the_model_before_the_iteration(algorithm, later):
    proposal = ask_jit(algorithm, later)
    objectives, measures, fields = evaluated(proposal)
    state, _ = host(tell_jit(algorithm, later, proposal, (objectives, measures, fields)))
    told = state.emitter.feedback
    before = np.asarray(discount_at(algorithm.discount, later.discount, measures))
    # Rounded differently inside and outside the compiled program.
    np.testing.assert_allclose(told.improvements, objectives - before, rtol=0, atol=1e-6)
    trained = np.asarray(discount_at(algorithm.discount, state.discount, measures))
    assert np.abs(trained - before).max() > 1e-4
    # What improved the archive is judged by the archive before the batch.
    cells = np.asarray(index_of(algorithm.archive, measures))
    elites = np.asarray(later.store.objectives)[cells]
    np.testing.assert_array_equal(told.accepted, objectives > elites)
    assert 0 < told.accepted.sum() < BATCH
    # New cells count from the floor, which is 0 here.
    gains = np.maximum(objectives - np.where(np.isfinite(elites), elites, 0.0), 0.0)
    np.testing.assert_allclose(told.gains, gains, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(told.was_empty, ~np.isfinite(elites))
    assert told.valid.all()
    assert told.iteration == 4


def test_given_cells_stand_in_place_of_the_archives_own(algorithm, start):
    proposal = ask_jit(algorithm, start)
    cells = np.arange(BATCH, dtype=np.int32) % 2 + 40
    state, report = host(tell_jit(algorithm, start, proposal, evaluated(proposal), cells))
    np.testing.assert_array_equal(np.flatnonzero(occupied(state)), [40, 41])
    assert report.unique_cells == 2


def test_giving_the_archives_own_cells_changes_nothing(algorithm, start):
    proposal = ask_jit(algorithm, start)
    evaluation = evaluated(proposal)
    cells = np.asarray(index_of(algorithm.archive, evaluation[1]))
    with_cells = tell_jit(algorithm, start, proposal, evaluation, cells)
    without = tell_jit(algorithm, start, proposal, evaluation)
    for a, b in zip(bits(with_cells), bits(without), strict=True):
        # Two programs, which may round differently.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# Failures


FAILURES = {
    "NaN objective": (np.nan, 0.0),
    "infinite objective": (np.inf, 0.0),
    "minus infinite objective": (-np.inf, 0.0),
    "NaN measure": (9.0, np.nan),
    "infinite measure": (9.0, np.inf),
    "minus infinite measure": (9.0, -np.inf),
}


def failing(proposal, rows, objective, measure):
    """The evaluation, with one of the ``FAILURES`` in the rows."""
    objectives, measures, fields = evaluated(proposal)
    objectives[rows] = objective
    if measure != 0.0:
        # One measure alone is enough.
        measures[rows, 1] = measure
    return objectives, measures, fields


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_failed_rows_are_masked_and_counted_and_the_others_count(algorithm, later, failure):
    proposal = ask_jit(algorithm, later)
    failed = np.array([0, 3, 7, 8, 23])
    good = np.setdiff1d(np.arange(BATCH), failed)
    evaluation = failing(proposal, failed, *failure)
    state, report = host(tell_jit(algorithm, later, proposal, evaluation))
    assert report.failed == 5
    assert state.failed == 5
    assert state.iteration == 4
    assert_finite(state)
    np.testing.assert_array_equal(np.flatnonzero(~state.emitter.feedback.valid), failed)
    # Never trained on.
    np.testing.assert_array_equal(np.flatnonzero(~report.fit.is_trained), failed)
    assert np.isfinite(report.fit.loss)
    # Never elites: no solution of theirs is in the archive, and every good row did as it would.
    for solution in np.asarray(proposal.solutions)[failed]:
        assert not (state.store.solutions == solution).all(axis=1).any()
    objectives, measures, _ = evaluated(proposal)
    cells = np.asarray(index_of(algorithm.archive, measures))[good]
    expected = np.array(later.store.objectives)
    np.maximum.at(expected, cells, objectives[good])
    np.testing.assert_array_equal(state.store.objectives, expected)
    assert (expected > np.asarray(later.store.objectives)).any()
    assert report.unique_cells == len(np.unique(cells))


def test_failures_add_up_over_iterations(algorithm, start):
    state = start
    for rows in ([1], [2, 3], []):
        proposal = ask_jit(algorithm, state)
        evaluation = failing(proposal, np.array(rows, int), np.nan, 0.0)
        state, report = tell_jit(algorithm, state, proposal, evaluation)
        assert report.failed == len(rows)
    assert state.failed == 3


def test_failed_rows_rank_last(algorithm, later):
    proposal = ask_jit(algorithm, later)
    objectives, measures, fields = evaluated(proposal)
    # Below zero, so that the zeros which stand for failed rows would rank first.
    objectives = objectives - 3.0
    failed = np.array([0, 9, 10])

    def means(value):
        objectives[failed] = value
        evaluation = (objectives, measures, fields)
        state, _ = tell_jit(algorithm, later, proposal, evaluation)
        return np.asarray(state.emitter.inner.gaussians.mean)

    np.testing.assert_array_equal(means(np.nan), means(-9.0))
    # The rows do matter to the two emitters they belong to.
    moved = np.abs(means(0.0) - means(-9.0)).max(axis=1)
    assert (moved[:2] > 1e-3).all()
    assert moved[2] == 0


def test_emitters_all_of_whose_rows_fail_restart_from_an_elite(algorithm, start):
    proposal = ask_jit(algorithm, start)
    rows = np.arange(EACH, 2 * EACH)
    evaluation = failing(proposal, rows, np.nan, 0.0)
    state, report = host(tell_jit(algorithm, start, proposal, evaluation))
    assert report.failed == EACH
    assert report.emitter["restarts"] == 1
    gaussians = state.emitter.inner.gaussians
    np.testing.assert_array_equal(gaussians.generation, [1, 0, 1])
    assert gaussians.sigma[1] == 0.5
    np.testing.assert_array_equal(gaussians.covariance[1], np.eye(SOL))
    # The archive was empty before this batch, so the elite is one of the batch itself.
    elites = state.store.solutions[occupied(state)]
    assert (elites == gaussians.mean[1]).all(axis=1).any()
    assert_finite(state)


def test_a_state_survives_a_batch_of_failures(algorithm, start):
    # Drivers refuse such a batch; the step itself stays finite, and learns nothing from it.
    proposal = ask_jit(algorithm, start)
    evaluation = failing(proposal, np.arange(BATCH), np.nan, 0.0)
    state, report = host(tell_jit(algorithm, start, proposal, evaluation))
    assert report.failed == BATCH
    assert report.unique_cells == 0
    assert not occupied(state).any()
    assert report.emitter["restarts"] == EMITTERS
    np.testing.assert_array_equal(state.emitter.inner.gaussians.mean, np.zeros((EMITTERS, SOL)))
    assert_finite(state)


# A full archive


def test_with_every_cell_filled_training_goes_on_without_empty_points(algorithm, later):
    proposal = ask_jit(algorithm, later)
    evaluation = evaluated(proposal)
    # Every cell is filled but those that this batch lands in.
    landed = np.isin(np.arange(64), index_of(algorithm.archive, evaluation[1]))
    objectives = jnp.where(landed, -jnp.inf, jnp.maximum(later.store.objectives, 0.0))
    full = eqx.tree_at(lambda s: s.store.objectives, later, objectives)
    state, report = host(tell_jit(algorithm, full, proposal, evaluation))
    assert occupied(state).all()
    assert report.fit.is_trained[:BATCH].all()
    assert report.fit.is_trained.shape == (BATCH + EMPTY,)
    assert not report.fit.is_trained[BATCH:].any()
    assert report.fit.epochs >= 1
    for old, new in zip(bits(full.discount.params), bits(state.discount.params), strict=True):
        assert (old != new).any()
    assert_finite(state)


# Purity


def test_an_iteration_is_compiled_once_for_all(algorithm, later):
    before = dict(traces)
    advance(algorithm, later, 2)
    assert traces == before


def test_the_same_input_gives_the_same_bits_and_is_left_as_it_was(algorithm, later):
    before = bits(later)
    proposal = ask_jit(algorithm, later)
    first = tell_jit(algorithm, later, proposal, evaluated(proposal))
    second = tell_jit(algorithm, later, proposal, evaluated(proposal))
    identical(first, second)
    for old, now in zip(before, bits(later), strict=True):
        np.testing.assert_array_equal(old, now)


def test_the_same_seed_starts_the_same_and_another_one_differently(algorithm, start):
    identical(init_jit(algorithm, KEY), start)
    other = init_jit(algorithm, jax.random.key(12))
    for mine, theirs in zip(bits(start.discount.params), bits(other.discount.params), strict=True):
        assert (mine != theirs).all()


@pytest.mark.slow
def test_tracing_leaks_nothing(algorithm, start):
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)
    over_seeds = eqx.filter_jit(eqx.filter_vmap(step, in_axes=(None, None, 0)))
    with jax.checking_leaks():
        state, report = eqx.filter_eval_shape(over_seeds, algorithm, evaluate, stacked)
    assert state.iteration.shape == report.failed.shape == (2,)


def test_the_best_of_many_random_elites_are_varied():
    archive = GridArchive((8, 8), -1.0, 1.0)
    emitter = Variation(np.zeros(SOL), 0.1, batch_size=5, best_of=64)
    algorithm = Algorithm(emitter, archive, Thresholds())
    state = eqx.filter_jit(init)(algorithm, jax.random.key(0))
    solutions = np.arange(5.0)[:, None] * np.ones(SOL)
    objectives = jnp.asarray([1.0, 2.0, 9.0, 3.0, 4.0])
    measures = jnp.linspace(-0.9, 0.9, 5)[:, None] * jnp.ones(2)
    batch = masked_batch(algorithm, jnp.asarray(solutions), (objectives, measures, {}), None)
    state, _ = eqx.filter_jit(add)(algorithm, state, batch)
    # The thresholds are f_min, so the improvement is the objective. Of 64 draws among five elites,
    # one that misses the best has a chance of one in a million.
    parents = eqx.filter_jit(ask)(algorithm, state).solutions
    assert np.abs(np.asarray(parents) - 2.0).max() < 1
