"""Gradient ascent: its directions against `jax.grad`, laws of its steps, and whole searches."""

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
from gloam.records import Climb, Feedback

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
@pytest.mark.parametrize("discount", [None, Thresholds(), NoDiscount()])
def test_directions_are_the_gradients_of_what_points_climb(discount):
    used = algorithm(discount)
    rows, twice = used.emitter.gradient_rows, (evaluate, evaluate)

    @jax.jit
    def both(state):
        """The directions, what they should be, the measures and the kinds."""
        proposal = step.ask(used, state)
        found, pullback = step._evaluated_with_gradients(twice, proposal.solutions, rows)
        weights = step.gradient_weights(used, state, proposal, found)
        batch = step.masked_batch(used, proposal.solutions, found, None)
        after, _ = step.add(used, state, batch)
        centers = used.archive.centers_of(batch.cells[rows])

        def climbed(solutions):
            objectives, measures = evaluate(solutions)

            def improvements(measures):
                one = jax.tree.map(lambda leaf: leaf[rows], batch)
                at = type(one)(solutions, objectives, measures, one.cells, one.valid, {})
                return step.score(used, after, at)[1].improvements

            away = jnp.mean(jnp.square((measures - centers) / 4.0), axis=1)
            refined = improvements(jax.lax.stop_gradient(measures)) - proposal.aims.pulls * away
            return jnp.where(proposal.aims.refines, refined, improvements(measures)).sum()

        expected = jax.grad(climbed)(proposal.solutions[rows])
        measures = found[1], evaluate(proposal.solutions)[1]
        return pullback(weights), expected, measures, proposal.aims.refines

    directions, expected, measures, refines = both(advanced(used, 5))
    np.testing.assert_allclose(*measures, rtol=1e-6)
    assert 0 < int(refines.sum()) < POINTS  # both kinds are there
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
    state = EMITTER.init()
    points = state.points
    logs = jnp.stack([jnp.linspace(-1, 1, POINTS), jnp.zeros(POINTS)], axis=1)
    refines = jnp.zeros(POINTS, bool)
    points = type(points)(
        *(getattr(points, n) for n in ("solutions", "momentum", "square", "age", "idle")),
        logs,
        refines,
    )
    gains = jnp.asarray([0, 0, 0, 0, 0, 5.0])
    count = jnp.zeros((), jnp.int32)
    learned = EMITTER._learned(state, points, gains, count, count)
    np.testing.assert_allclose(learned.logs[0] - state.logs[0], [1.0, 0.0], atol=1e-6)
    np.testing.assert_array_equal(learned.logs[1], state.logs[1])
    assert float(learned.refining) == np.float32(0.05)  # those that refine brought nothing


def small(gradients=True):
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=20)
    archive = gloam.GridArchive((20, 20), -51.2, 51.2, f_min=0.0)
    options = {"batch_size": 6, "num_init_points": 100}
    if not gradients:
        options |= {"num_emitters": 9}
    return domain, gloam.DMS(archive, domain.x0, 0.5, gradients=gradients, **options)


@pytest.mark.slow
def test_gradients_find_more_with_as_many_evaluations():
    # Seeds 0 to 9: QD scores of 306.4 to 307.7 with gradients, 238 to 252 without.
    scores = {}
    for gradients in (True, False):
        domain, used = small(gradients)
        assert used.emitter.num_solutions == 90
        result = gloam.run(domain, used, iterations=150, seeds=3, progress=False)
        scores[gradients] = [elites.qd_score for elites in result.elites_by_seed.values()]
    assert min(scores[True]) > 304
    assert max(scores[False]) < 270


@pytest.mark.slow
def test_measures_alone_are_climbed_by_closeness():
    items = np.random.default_rng(0).normal(size=(40, 3))
    archive = gloam.CVTArchive(items)
    ascent = GradientAscent(np.zeros(3), 0.3, batch_size=20)
    # Items have a variance of 1, so 0 is a floor of closeness. Estimated from the first elites,
    # which differ little, it would be too high.
    used = gloam.Algorithm(ascent, archive, DiscountModel(num_init_points=30, floor=0.0))
    result = gloam.run(lambda x: (None, x), used, iterations=200, progress=False)
    # Seeds 0 to 9: 0.925 to 1, and medians of 0.9989 to 1.
    assert result.elites.coverage > 0.85
    # Refining ends at the items themselves, where the closeness is 1.
    assert np.median(result.elites.objectives) > 0.99


def test_the_parts_of_a_search_with_gradients():
    archive = gloam.GridArchive((8, 8), -2.0, 2.0)
    used = gloam.DMS(archive, np.zeros(SIZE), 0.3, gradients=True)
    sizes = [part.num_solutions for part in used.emitter.emitters]
    assert sizes == [108, 162, 270, 270]  # the last one replaces some of the first two
    np.testing.assert_array_equal(used.emitter.gradient_rows, np.arange(270, 540))
    with pytest.raises(TypeError, match="'gradients'"):
        gloam.DMS.paper(archive, np.zeros(SIZE), 0.3, gradients=True)
    with pytest.raises(ValueError, match="patience: expected two numbers of steps, got 5"):
        GradientAscent(np.zeros(SIZE), 0.3, patience=5)
