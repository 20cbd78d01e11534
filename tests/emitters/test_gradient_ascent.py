"""Gradient ascent: its directions against `jax.grad`, laws of its steps, and whole searches."""

import functools
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.discounts import DiscountModel, NoDiscount, Thresholds
from gloam.emitters import CmaEmitters, GradientAscent, Mixture
from gloam.emitters.gradient_ascent import Goal
from gloam.records import Climb, Feedback
from tests.helpers import assert_same_bits, refused

SIZE, POINTS = 4, 6


def evaluate(solutions):
    """A smooth problem: two measures that depend on three of four variables."""
    measures = jnp.stack([solutions[:, 0] + solutions[:, 1] ** 2, jnp.sin(solutions[:, 2])], axis=1)
    return 1.0 - jnp.square(solutions).sum(axis=1) / 20, measures


def algorithm(discount=None, **options):
    archive = gloam.GridArchive((8, 8), -2.0, 2.0)
    cma = CmaEmitters(np.zeros(SIZE), 0.3, num_emitters=2, batch_size=6)
    ascent = GradientAscent(np.zeros(SIZE), 0.3, batch_size=POINTS, **options)
    discount = DiscountModel(num_init_points=30) if discount is None else discount
    return gloam.Algorithm(Mixture([cma, ascent]), archive, discount)


def advanced(used, iterations, function=evaluate):
    state = step.init(used, root_key(3))
    advance = jax.jit(lambda state: step.step(used, function, state))
    for _ in range(iterations):
        state, _ = advance(state)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("discount", "goal"),
    [
        *((None, goal) for goal in get_args(Goal)),
        (Thresholds(), "improvement"),  # the other goals know of no discount
        (NoDiscount(), "improvement"),
    ],
)
def test_directions_are_the_gradients_of_what_points_climb(discount, goal):
    used = algorithm(discount, goal=goal)
    rows, twice = used.emitter.gradient_rows, (evaluate, evaluate)

    @jax.jit
    def both(state):
        """The directions, what they should be, and the measures."""
        proposal = step.ask(used, state)
        found, pullback = step._evaluated_with_gradients(twice, proposal.solutions, rows)
        weights = step.gradient_weights(used, state, proposal, found)
        batch = step.masked_batch(used, proposal.solutions, found, None)
        after, _ = step.add(used, state, batch)
        cells = proposal.targets[rows] if goal == "target" else batch.cells[rows]
        centers = used.archive.centers_of(cells)

        def climbed(solutions):
            objectives, measures = evaluate(solutions)

            def improvements(measures):
                one = jax.tree.map(lambda leaf: leaf[rows], batch)
                at = type(one)(solutions, objectives, measures, one.cells, one.valid, {})
                return step.score(used, after, at)[1].improvements

            away = jnp.mean(jnp.square((measures - centers) / 4.0), axis=1)
            pulled = improvements(jax.lax.stop_gradient(measures)) - proposal.aims.pulls * away
            return (improvements(measures) if goal == "improvement" else pulled).sum()

        expected = jax.grad(climbed)(proposal.solutions[rows])
        measures = found[1], evaluate(proposal.solutions)[1]
        return pullback(weights), expected, measures

    directions, expected, measures = both(advanced(used, 5))
    np.testing.assert_allclose(*measures, rtol=1e-6)
    np.testing.assert_allclose(directions, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_every_solution_is_evaluated_once():
    sizes = []

    def counted(solutions):
        sizes.append(solutions.shape[0])
        return evaluate(solutions)

    used = algorithm()
    jax.eval_shape(lambda state: step.step(used, counted, state), step.init(used, root_key(3)))
    assert sorted(sizes) == [POINTS, 12]


EMITTER = GradientAscent(np.zeros(SIZE), 0.3, batch_size=POINTS)


@eqx.filter_jit
def _adapted(emitter, gradients, elites, valid):
    state = emitter.init()
    proposal = emitter.ask(state, elites, key=jax.random.key(1))
    mask = jnp.ones(POINTS, bool)
    is_finite = jnp.all(jnp.isfinite(gradients), axis=1)
    climb = Climb(jnp.where(is_finite[:, None], gradients, 0), is_finite)
    told = jnp.zeros(POINTS), mask, ~mask, mask & valid, jnp.int32(1), climb
    feedback = Feedback(*told, gains=jnp.ones(POINTS))
    return proposal.solutions, emitter.adapt(state, proposal, feedback, elites[:0])


def adapted(emitter, gradients, solutions, valid=True):
    """The solutions of points that start at ``solutions``, and the state after these gradients."""
    rows = jnp.asarray(gradients, jnp.float32), jnp.asarray(solutions, jnp.float32)
    start, state = _adapted(emitter, *rows, jnp.asarray(valid))
    return np.asarray(start), state


VECTORS = st.lists(
    st.lists(st.floats(-10, 10, width=32), min_size=SIZE, max_size=SIZE),
    min_size=POINTS,
    max_size=POINTS,
).map(np.float32)


@given(VECTORS, st.sampled_from([2.0**-20, 2.0**-3, 1.0, 2.0**15]))
def test_a_step_does_not_depend_on_the_unit_of_the_objective(gradients, factor):
    gradients = np.where(np.abs(gradients) < 1e-3, 0.0, gradients)
    zeros = np.zeros((POINTS, SIZE))
    _, one = adapted(EMITTER, gradients, zeros)
    _, other = adapted(EMITTER, factor * gradients, zeros)
    np.testing.assert_allclose(one.points.solutions, other.points.solutions, rtol=1e-5, atol=1e-7)


@given(VECTORS, st.integers(0, 1000))
def test_steps_rotate_with_gradients(gradients, seed):
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(SIZE, SIZE)))[0]
    zeros = np.zeros((POINTS, SIZE))
    start, one = adapted(EMITTER, gradients, zeros)
    _, other = adapted(EMITTER, gradients @ turn, zeros)
    np.testing.assert_allclose(
        (np.asarray(one.points.solutions) - start) @ turn,
        np.asarray(other.points.solutions) - start,
        rtol=1e-3,
        atol=1e-4,
    )


def test_the_first_step_has_its_length_along_the_gradient():
    gradients = np.tile(np.float32([3.0, 0.0, 0.0, 0.0]), (POINTS, 1))
    start, state = adapted(EMITTER, gradients, np.zeros((POINTS, SIZE)))
    moved = np.asarray(state.points.solutions) - start
    # The root mean square of a gradient along one of four axes is half of its length.
    lengths = 0.3 * 2 * np.exp(np.asarray(state.points.logs)[:, 0])
    np.testing.assert_allclose(moved[:, 0], lengths, rtol=1e-4)
    np.testing.assert_allclose(moved[:, 1:], 0.0, atol=1e-7)


def test_with_bounds_on_both_sides_steps_are_shares_of_the_widths():
    wide = np.float32([1.0, 8.0, 0.25, 64.0])
    boxes = [
        GradientAscent(0.5 * w, 0.2, batch_size=POINTS, bounds=(0, w)) for w in (wide / wide, wide)
    ]
    gradients = np.random.default_rng(0).normal(size=(POINTS, SIZE))
    starts = np.full((POINTS, SIZE), 0.5)
    _, unit = adapted(boxes[0], gradients, starts)
    _, scaled = adapted(boxes[1], gradients / wide, starts * wide)
    np.testing.assert_array_equal(unit.points.solutions, scaled.points.solutions / wide)


def test_points_without_a_finite_gradient_start_again_and_are_counted():
    gradients = np.ones((POINTS, SIZE))
    gradients[1, 2] = np.nan
    gradients[4, 0] = np.inf
    _, state = adapted(EMITTER, gradients, np.zeros((POINTS, SIZE)))
    assert np.asarray(state.points.age).tolist() == [1, 0, 1, 1, 0, 1]
    assert int(state.failed) == 2
    assert np.isfinite(state.points.solutions).all()
    # Failed evaluations are no failed gradients.
    assert int(adapted(EMITTER, gradients, np.zeros((POINTS, SIZE)), valid=False)[1].failed) == 0


def test_steps_move_to_those_that_bring_more():
    state, _, logs = first_gains([0, 0, 0, 0, 0, 5.0])
    # Only the last point brought something: the mean moves to its logarithms from those of all.
    np.testing.assert_allclose(state.logs - START, logs[-1] - logs.mean(axis=0), atol=1e-5)
    state, _, logs = first_gains([2.0, 0, 0, 2.0, 0, 0])
    mean = (logs[0] + logs[3]) / 2
    np.testing.assert_allclose(state.logs - START, mean - logs.mean(axis=0), atol=1e-5)
    assert float(state.gain) == 4.0
    np.testing.assert_allclose(first_gains(np.zeros(POINTS))[0].logs, START, atol=1e-6)
    np.testing.assert_allclose(first_gains(np.ones(POINTS))[0].logs, START, atol=1e-6)


def test_points_that_are_not_used_bring_nothing_and_stay():
    is_used = np.array([True, True, False, True, False, False])
    state, before, logs = first_gains([0, 0, 9.0, 5.0, 0, 0], is_used=is_used)
    np.testing.assert_allclose(state.logs - START, logs[3] - logs[is_used].mean(axis=0), atol=1e-5)
    assert float(state.gain) == 5.0
    np.testing.assert_array_equal(state.points.age, np.where(is_used, 1, 0))
    for new, old in zip(*map(jax.tree.leaves, (state.points, before.points)), strict=True):
        np.testing.assert_array_equal(new[~is_used], old[~is_used])


START = np.log(np.float32([0.3, 10.0]))


def first_gains(gains, is_used=None):
    """States after and before first steps that bring this, and the logarithms of the points."""
    is_used = jnp.ones(POINTS, bool) if is_used is None else jnp.asarray(is_used)
    return jax.tree.map(np.asarray, _first_gains(jnp.asarray(gains, jnp.float32), is_used))


@jax.jit
def _first_gains(gains, is_used):
    state = EMITTER.init()
    proposal = EMITTER.ask(state, jnp.zeros((POINTS, SIZE)), key=jax.random.key(1))
    mask = jnp.ones(POINTS, bool)
    climb = Climb(jnp.ones((POINTS, SIZE)), mask)
    told = jnp.zeros(POINTS), mask, ~mask, mask, jnp.int32(1), climb
    feedback = Feedback(*told, gains=gains, is_used=is_used)
    after = EMITTER.adapt(state, proposal, feedback, jnp.zeros((0, SIZE)))
    return after, state, proposal.aux[0]


# Goals


def linear(solutions):
    return jnp.zeros(len(solutions)), solutions[:, :2]


def aimed_search(evaluate, iterations, seed=0, patience=None):
    """State, proposal and next state of each iteration of a search, and the centers of cells."""
    archive = gloam.GridArchive((4, 4), -2.0, 2.0)
    aimed = GradientAscent(np.zeros(SIZE), 0.2, goal="target", batch_size=8, patience=patience)
    used = gloam.Algorithm(aimed, archive, NoDiscount())
    ask = jax.jit(functools.partial(step.ask, used))
    advance = jax.jit(lambda state: step.step(used, evaluate, state)[0])
    state = jax.jit(functools.partial(step.init, used))(root_key(seed))
    centers = np.asarray(archive.centers_of(jnp.arange(16)))
    state = jax.device_get(state)
    for _ in range(iterations):
        proposal, new = jax.device_get((ask(state), advance(state)))
        yield state, proposal, new, centers
        state = new


def test_points_climb_to_empty_cells_and_begin_again_when_these_are_filled():
    number_reached = 0
    for before, proposal, after, table in aimed_search(linear, 40):
        old, new = before.emitter.points, after.emitter.points
        targets = np.asarray(proposal.targets)
        is_new = np.asarray(old.age == 0)
        occupied = np.asarray(before.store.occupied)
        if not occupied.all():
            # A point takes an empty cell, and keeps it until it begins again.
            assert not occupied[targets[is_new]].any()
        np.testing.assert_array_equal(targets[~is_new], old.cells[~is_new])
        np.testing.assert_array_equal(new.cells, targets)
        is_filled = np.asarray(after.store.occupied)[targets]
        assert (np.asarray(new.age)[is_filled] == 0).all()
        number_reached += int((is_filled & ~occupied[targets]).sum())
        # The pull is along the line to the center, as measures are two of the variables.
        centers = table[targets]
        start = np.asarray(proposal.solutions)
        moved = np.asarray(new.solutions) - start
        goes_on = is_new & ~is_filled
        away = (centers - start[:, :2])[goes_on]
        lengths = np.linalg.norm(away, axis=1) * np.linalg.norm(moved[goes_on], axis=1)
        cosines = (away * moved[goes_on, :2]).sum(axis=1) / lengths
        np.testing.assert_allclose(cosines, 1.0, atol=1e-4)
    # Seeds 0 to 9 fill all cells, and 33 to 39 points see theirs filled.
    assert after.store.occupied.all()
    assert number_reached > 25


def test_a_point_that_aims_begins_again_after_its_patience():
    def constant(solutions):
        return jnp.zeros(len(solutions)), 0.0 * solutions[:, :2]

    states = [after.emitter for _, _, after, _ in aimed_search(constant, 9, patience=3)]
    # The first solutions fill a cell, and the others bring nothing.
    ages = [1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert [state.points.age.tolist() for state in states] == [[age] * 8 for age in ages]
    assert [int(state.restarts) for state in states] == [0, 0, 0, 8, 8, 8, 16, 16, 16]
    assert GradientAscent(np.zeros(SIZE), 0.3, goal="objective").patience == 4
    assert GradientAscent(np.zeros(SIZE), 0.3, goal="target").patience == 20


def test_the_objective_is_climbed_within_the_cell():
    archive = gloam.GridArchive((4, 4), -2.0, 2.0)
    ascent = GradientAscent(np.full(SIZE, 0.5), 0.2, goal="objective", batch_size=8)
    used = gloam.Algorithm(ascent, archive, NoDiscount())

    def evaluate(solutions):  # the best solutions of all cells have zeros after the measures
        return 1.0 - jnp.square(solutions[:, 2:]).sum(axis=1), solutions[:, :2]

    result = gloam.run(evaluate, used, 60, seeds=[1], progress=False)
    assert result.elites.coverage < 0.5
    assert result.elites.objectives.max() > 0.9999
    assert result.elites.cells[result.elites.objectives.argmax()] == 10  # that of x0


@pytest.mark.parametrize("goal", get_args(Goal))
def test_metrics_of_a_goal(goal):
    ascent = GradientAscent(np.zeros(SIZE), 0.3, goal=goal, batch_size=POINTS)
    metrics = ascent.metrics(ascent.init())
    has_pull = {"pull"} if goal != "improvement" else set()
    assert metrics.keys() == {"restarts", "gradients_failed", "step"} | has_pull
    assert float(metrics["step"]) == pytest.approx(0.3)
    labels = {"improvement": "ascent", "objective": "refinement", "target": "aimed_ascent"}
    assert ascent.label == labels[goal]


def test_parts_are_emitters_with_fewer_points():
    state = first_gains(np.arange(POINTS))[0]
    assert (EMITTER.num_parts, EMITTER.divides_into(3), EMITTER.divides_into(4)) == (1, True, False)
    assert EMITTER.part(3).num_solutions == 2
    whole = EMITTER.init()
    for index in range(3):
        own = EMITTER.part_state(state, jnp.asarray(index), 3)
        np.testing.assert_array_equal(own.points.logs, state.points.logs[2 * index :][:2])
        whole = EMITTER.with_part_state(whole, jnp.asarray(index), 3, own)
    assert_same_bits(whole, state)


def small(gradients=True):
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=20)
    archive = gloam.GridArchive((20, 20), -51.2, 51.2, f_min=0.0)
    options = {"batch_size": 6, "num_init_points": 100}
    return domain, gloam.DMS(archive, domain.x0, 0.5, gradients=gradients, **options)


@pytest.mark.release
def test_gradients_find_more_with_as_many_evaluations():
    # Seeds 0 to 9: QD scores of 281 to 305 with gradients, 161 to 213 without.
    scores = {}
    for gradients in (True, False):
        domain, used = small(gradients)
        assert used.emitter.num_solutions == 90
        result = gloam.run(domain, used, iterations=100, seeds=3, progress=False)
        scores[gradients] = [elites.qd_score for elites in result.elites_by_seed.values()]
    assert min(scores[True]) > 265
    assert max(scores[False]) < 235


@pytest.mark.slow
def test_measures_alone_are_climbed_by_closeness():
    items = np.random.default_rng(0).normal(size=(40, 3))
    archive = gloam.CVTArchive(items)
    goals = [GradientAscent(np.zeros(3), 0.3, batch_size=8, goal=goal) for goal in get_args(Goal)]
    # Items have a variance of 1, so 0 is a floor of closeness. Estimated from the first elites,
    # which differ little, it would be too high.
    used = gloam.Algorithm(Mixture(goals), archive, DiscountModel(num_init_points=30, floor=0.0))
    result = gloam.run(lambda x: (None, x), used, iterations=200, progress=False)
    # With seeds 0 to 9 all items are found, and nearly reached: there the closeness is 1.
    assert result.elites.coverage > 0.95
    assert np.median(result.elites.objectives) > 0.999


def test_settings_that_do_not_fit_are_refused():
    archive = gloam.GridArchive((8, 8), -2.0, 2.0)
    with pytest.raises(TypeError, match="'gradients'"):
        gloam.DMS.paper(archive, np.zeros(SIZE), 0.3, gradients=True)
    with refused("goal: expected", "target", "nowhere"):
        GradientAscent(np.zeros(SIZE), 0.3, goal="nowhere")
    with refused("patience: expected", 0):
        GradientAscent(np.zeros(SIZE), 0.3, patience=0)
