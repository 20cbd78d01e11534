"""Many CMA-ES emitters: ranking, selection, restarts and bounds."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.emitters import (
    CMAES,
    LMMAES,
    BasicRestart,
    CmaEmitters,
    FilterSelection,
    MuSelection,
    RestartEvery,
    RestartWithoutImprovement,
    SepCMAES,
)
from gloam.emitters.cma_es import CmaState, Strategy
from gloam.records import Proposal
from tests.helpers import feedback

EMITTERS, EACH, SOL = 3, 6, 3
SHAPE = (EMITTERS, EACH)
ELITES = 100.0 + jnp.arange(EMITTERS * SOL, dtype=jnp.float32).reshape(EMITTERS, SOL)
NONE = jnp.zeros((0, SOL))

emitters_of = partial(
    CmaEmitters,
    x0=np.linspace(-1, 1, SOL),
    sigma0=0.5,
    num_emitters=EMITTERS,
    batch_size=EACH,
    restart=BasicRestart(),
)

compiled_ask = eqx.filter_jit(lambda emitter, state, key: emitter.ask(state, NONE, key=key))
jitted_adapt = eqx.filter_jit(lambda emitter, *arguments: emitter.adapt(*arguments))
update = eqx.filter_jit(CMAES().update)


def ask(emitter, state, seed: int) -> Proposal:
    return compiled_ask(emitter, state, jax.random.key(seed))


def flat_mask(mask) -> jax.Array:
    return jnp.asarray(np.broadcast_to(np.asarray(mask), SHAPE).reshape(-1))


def adapt(emitter, state, proposal, values, *, improved=True, valid=True, finished=1):
    values = jnp.asarray(np.asarray(values, np.float32).reshape(-1))
    told = feedback(values, flat_mask(improved), flat_mask(valid), jnp.asarray(finished))
    return jitted_adapt(emitter, state, proposal, told, ELITES)


@pytest.fixture(scope="module")
def worn():
    """A state three updates old, different for each emitter, and a proposal from it."""
    emitter = emitters_of()
    state = emitter.init()
    for seed in range(3):
        proposal = ask(emitter, state, seed)
        # Even, so that the factor is renewed each time and belongs to the covariance.
        state = adapt(emitter, state, proposal, values_of(proposal), finished=2)
    return state, ask(emitter, state, 99)


def values_of(proposal) -> np.ndarray:
    """Improvements by emitter: a slope of its own for each emitter, no ties."""
    solutions = np.asarray(proposal.solutions).reshape(*SHAPE, SOL)
    slopes = np.array([[1.0, 2.0, 0.0], [-1.0, 0.0, 0.5], [0.0, 0.3, -2.0]])
    return np.einsum("ebi,ei->eb", solutions, slopes)


def gaussian(state, number: int) -> CmaState:
    return jax.tree.map(lambda array: array[number], state.gaussians)


def assert_close(one, other):
    # The same float32 sums, batched over emitters or not.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def restarted(state) -> list[bool]:
    """Which emitters are as new. (Others have a generation of at least one.)"""
    return (np.asarray(state.gaussians.generation) == 0).tolist()


def by_hand(state, proposal, number: int, order, parents: int, update=update):
    solutions = proposal.solutions.reshape(*SHAPE, SOL)[number]
    noise = proposal.aux[number]
    return update(gaussian(state, number), solutions, noise, jnp.asarray(order), parents)


# Asking


def test_solutions_come_from_each_emitters_own_gaussian(worn):
    emitter = emitters_of()
    state, proposal = worn
    assert proposal.solutions.shape == (emitter.num_solutions, SOL) == (18, 3)
    for number in range(EMITTERS):
        one = gaussian(state, number)
        assert np.abs(np.triu(one.factor, 1)).max() == 0 != np.abs(np.tril(one.factor, -1)).max()
        expected = one.mean + one.sigma * proposal.aux[number] @ one.factor.T
        ours = proposal.solutions[number * EACH : (number + 1) * EACH]
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_noise_is_standard_normal_and_new_for_every_emitter():
    emitter = emitters_of()
    state = emitter.init()
    noise = np.stack([ask(emitter, state, seed).aux for seed in range(60)])
    # 3240 draws: the mean is within 4 / sqrt(3240), the variance within 4 * sqrt(2 / 3240).
    assert abs(noise.mean()) < 0.07
    assert abs(noise.var() - 1) < 0.1
    assert len(np.unique(noise)) > 3230


def test_asking_depends_on_the_key_alone():
    emitter = emitters_of()
    same, again, other = (ask(emitter, emitter.init(), seed) for seed in (1, 1, 2))
    assert_equal(same, again)
    assert (same.solutions != other.solutions).all()


def test_every_emitter_starts_at_x0():
    state = emitters_of().init()
    for number in range(EMITTERS):
        assert_equal(gaussian(state, number), CMAES().start(emitters_of().x0, 0.5))
    assert state.restarts == 0


# Ranking and selection


def test_mu_selection_takes_the_best_half(worn):
    emitter = emitters_of(selection=MuSelection())
    state, proposal = worn
    values = values_of(proposal)
    # Which solutions were accepted does not matter.
    for improved in (True, False, np.arange(18).reshape(SHAPE) % 5 == 0):
        after = adapt(emitter, state, proposal, values, improved=improved)
        for number in range(EMITTERS):
            order = np.argsort(-values[number])
            assert_close(gaussian(after, number), by_hand(state, proposal, number, order, 3))


def test_filter_selection_takes_as_many_as_improved(worn):
    emitter = emitters_of(selection=FilterSelection())
    state, proposal = worn
    values = values_of(proposal)
    counts = [2, 6, 0]
    # The worst improved: it is their number that counts, the parents are the best.
    rank = np.argsort(np.argsort(values, axis=1), axis=1)
    improved = rank < np.asarray(counts)[:, None]
    after = adapt(emitter, state, proposal, values, improved=improved)
    for number, parents in enumerate(counts):
        order = np.argsort(-values[number])
        assert_close(gaussian(after, number), by_hand(state, proposal, number, order, parents))
    assert not np.allclose(after.gaussians.mean[0], state.gaussians.mean[0])
    assert_equal(after.gaussians.mean[2], state.gaussians.mean[2])


def test_ties_rank_by_index(worn):
    emitter = emitters_of()
    state, proposal = worn
    values = np.zeros(SHAPE)
    values[:, 4] = 1.0
    after = adapt(emitter, state, proposal, values)
    expected = by_hand(state, proposal, 1, [4, 0, 1, 2, 3, 5], 3)
    assert_close(gaussian(after, 1), expected)


@pytest.mark.parametrize("worth", [1e9, 0.0, np.nan, np.inf])
def test_invalid_rows_rank_last_and_carry_no_weight(worn, worth):
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal) - 50.0  # all below what the failed rows carry
    valid = np.ones(SHAPE, bool)
    valid[0, [1, 4]] = False  # four are left: three parents still
    valid[1, [0, 2, 3, 5]] = False  # two are left: two parents
    after = adapt(emitter, state, proposal, np.where(valid, values, worth), valid=valid)
    order = np.argsort(-np.where(valid, values, -np.inf), axis=1)
    for number, parents in enumerate([3, 2, 3]):
        expected = by_hand(state, proposal, number, order[number], parents)
        assert_close(gaussian(after, number), expected)


def test_an_emitter_without_valid_rows_restarts(worn):
    emitter = emitters_of()
    state, proposal = worn
    valid = np.array([[True], [False], [True]])
    after = adapt(emitter, state, proposal, values_of(proposal), valid=valid)
    assert restarted(after) == [False, True, False]


def test_pyribs_covariance_is_passed_on(worn):
    state, proposal = worn
    values = values_of(proposal)
    after = adapt(emitters_of(strategy=CMAES(pyribs_covariance=True)), state, proposal, values)
    like_pyribs = eqx.filter_jit(CMAES(pyribs_covariance=True).update)
    for number in range(EMITTERS):
        order = np.argsort(-values[number])
        expected = by_hand(state, proposal, number, order, 3, update=like_pyribs)
        assert_close(gaussian(after, number), expected)


def test_the_factor_is_renewed_after_every_lazy_gap(worn):
    gap = CMAES().gap(SOL, EACH)
    assert gap == 2
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal)
    lazy = adapt(emitter, state, proposal, values, finished=2 * gap + 1)
    fresh = adapt(emitter, state, proposal, values, finished=2 * gap)
    assert_equal(lazy.gaussians.factor, state.gaussians.factor)
    assert_equal(lazy.gaussians.covariance, fresh.gaussians.covariance)
    product = jnp.einsum("eij,ekj->eik", fresh.gaussians.factor, fresh.gaussians.factor)
    np.testing.assert_allclose(product, fresh.gaussians.covariance, atol=1e-5)
    assert not np.allclose(fresh.gaussians.factor, state.gaussians.factor, atol=1e-3)


# Independence


def test_permuting_emitters_permutes_results(worn):
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal).astype(np.float32)
    values[2] = 7.0  # flat: this one restarts
    order = np.array([2, 0, 1])

    def permuted(array):
        array = np.asarray(array)
        rows = array.reshape(*SHAPE, -1) if len(array) == EMITTERS * EACH else array
        return jnp.asarray(rows[order].reshape(array.shape))

    after = adapt(emitter, state, proposal, values)
    gaussians, proposal = jax.tree.map(permuted, (state.gaussians, proposal))
    every = flat_mask(True)
    shuffled = jitted_adapt(
        emitter,
        eqx.tree_at(lambda s: s.gaussians, state, gaussians),
        proposal,
        feedback(permuted(values.reshape(-1)), every, every, jnp.asarray(1)),
        permuted(ELITES),
    )
    assert restarted(after) == [False, False, True]
    assert_close(shuffled.gaussians, jax.tree.map(permuted, after.gaussians))
    assert shuffled.restarts == after.restarts == 1


def test_an_emitter_learns_from_its_own_solutions_alone(worn):
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal)
    other = values.copy()
    other[1] = -other[1]
    one, two = (adapt(emitter, state, proposal, v) for v in (values, other))
    for number in (0, 2):
        assert_equal(gaussian(one, number), gaussian(two, number))
    assert not np.allclose(one.gaussians.mean[1], two.gaussians.mean[1])


# Restarts


def assert_fresh_at_its_elite(state, number: int):
    assert_equal(gaussian(state, number), CMAES().start(ELITES[number], 0.5))


def test_basic_restart_leaves_sound_emitters_alone(worn):
    emitter = emitters_of()
    state, proposal = worn
    for finished in (1, 100, 1200):
        # Not even when nothing improved.
        after = adapt(
            emitter, state, proposal, values_of(proposal), improved=False, finished=finished
        )
        assert restarted(after) == [False] * 3
        assert (after.gaussians.generation == 4).all()
        assert after.restarts == state.restarts == 0


def test_scheduled_restarts_come_for_all_emitters_together():
    emitter = emitters_of(restart=RestartEvery(4))
    state, generations, restarts = emitter.init(), [], []
    for finished in range(1, 10):
        proposal = ask(emitter, state, finished)
        state = adapt(emitter, state, proposal, values_of(proposal), finished=finished)
        if finished == 4:
            for number in range(EMITTERS):
                assert_fresh_at_its_elite(state, number)
        assert len(set(state.gaussians.generation.tolist())) == 1
        generations.append(int(state.gaussians.generation[0]))
        restarts.append(int(state.restarts))
    assert generations == [1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert restarts == [0, 0, 0, 3, 3, 3, 3, 6, 6]


def test_emitters_without_improvement_restart(worn):
    emitter = emitters_of(restart=RestartWithoutImprovement())
    state, proposal = worn
    improved = np.zeros(SHAPE, bool)
    improved[0, 5] = improved[2] = True
    values = values_of(proposal)
    after = adapt(emitter, state, proposal, values, improved=improved)
    assert restarted(after) == [False, True, False]
    assert_fresh_at_its_elite(after, 1)
    order = np.argsort(-values[0])
    assert_close(gaussian(after, 0), by_hand(state, proposal, 0, order, 3))
    assert after.restarts == 1


@pytest.mark.parametrize(("span", "flat"), [(0.0, True), (5e-13, True), (2e-12, False)])
def test_a_flat_ranking_restarts(worn, span, flat):
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal)
    values[1] = np.linspace(0, span, EACH)
    after = adapt(emitter, state, proposal, values)
    assert restarted(after) == [False, flat, False]
    if flat:
        assert_fresh_at_its_elite(after, 1)


def test_invalid_rows_do_not_make_a_flat_ranking_look_steep(worn):
    emitter = emitters_of()
    state, proposal = worn
    values, valid = values_of(proposal), np.ones(SHAPE, bool)
    values[1] = 7.0
    values[1, 2], valid[1, 2] = -3.0, False
    assert restarted(adapt(emitter, state, proposal, values, valid=valid)) == [False, True, False]


@pytest.mark.parametrize(("name", "value"), [("sigma", 1e-13), ("sigma", 1e13), ("mean", np.nan)])
def test_a_degenerate_emitter_restarts(worn, name, value):
    emitter = emitters_of()
    state, proposal = worn
    values = values_of(proposal)
    state = eqx.tree_at(
        lambda s: getattr(s.gaussians, name), state, replace_fn=lambda array: array.at[1].set(value)
    )
    if name == "mean":  # what is drawn around it, and the new mean, are as broken
        proposal = eqx.tree_at(
            lambda p: p.solutions, proposal, proposal.solutions.at[EACH : 2 * EACH].set(value)
        )
    after = adapt(emitter, state, proposal, values)
    assert restarted(after) == [False, True, False]
    assert_fresh_at_its_elite(after, 1)
    assert after.restarts == 1


def test_a_covariance_that_cannot_be_factorised_restarts(worn):
    emitter = emitters_of()
    state, proposal = worn
    state = eqx.tree_at(
        lambda s: s.gaussians.covariance, state, replace_fn=lambda c: c.at[1].set(-jnp.eye(SOL))
    )
    after = adapt(emitter, state, proposal, values_of(proposal), finished=2)
    assert restarted(after) == [False, True, False]


# Bounds


def inside(solutions, lower, upper) -> bool:
    solutions, lower, upper = (np.asarray(array, np.float32) for array in (solutions, lower, upper))
    return bool(((solutions >= lower) & (solutions <= upper)).all())


@pytest.mark.parametrize("x0", [[0.0, 0.0, 0.0], [-1.0, 2.0, -0.5]], ids=["middle", "corner"])
@pytest.mark.parametrize("sigma", [0.5, 1e6, 1e30])
def test_all_solutions_are_inside_the_box(x0, sigma):
    lower, upper = [-1.0, -2.0, -0.5], [1.0, 2.0, 0.5]
    emitter = emitters_of(x0=x0, bounds=(lower, upper))
    # Set in the state: another sigma0 would be another program to compile.
    state = eqx.tree_at(lambda s: s.gaussians.sigma, emitter.init(), jnp.full(EMITTERS, sigma))
    for seed in range(5):
        solutions = ask(emitter, state, seed).solutions
        assert inside(solutions, lower, upper)
        assert len(np.unique(solutions, axis=0)) > 1


def test_a_search_pressed_against_a_corner_goes_on():
    emitter = emitters_of(x0=np.zeros(SOL), bounds=(-1, 1))
    state = emitter.init()
    for finished in range(1, 41):
        proposal = ask(emitter, state, finished)
        assert inside(proposal.solutions, -1, 1)
        values = np.asarray(proposal.solutions).sum(axis=1)
        state = adapt(emitter, state, proposal, values, finished=finished)
    # The corner has the value 3, the start 0, and the mean can only come close to the corner.
    assert values.max() > 2.9


@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.2, None), (None, 0.2), ([-np.inf, -0.2, -0.1], [0.3, np.inf, 0.1])]
)
def test_a_box_may_be_open(lower, upper):
    emitter = emitters_of(x0=np.zeros(SOL), bounds=(lower, upper))
    solutions = np.asarray(ask(emitter, emitter.init(), 0).solutions)
    low = np.broadcast_to(-np.inf if lower is None else lower, (SOL,))
    high = np.broadcast_to(np.inf if upper is None else upper, (SOL,))
    assert inside(solutions, low, high)
    # The open sides are open: one of 18 draws is one deviation away, all but surely.
    assert (solutions.min(axis=0)[np.isinf(low)] < -0.5).all()
    assert (solutions.max(axis=0)[np.isinf(high)] > 0.5).all()


# Two programs, one with bounds and one without, may differ in the last bit: some processors fuse a
# product and a sum.
SAME = {"rtol": 2e-7, "atol": 1e-7}


def test_loose_bounds_change_nothing():
    loose, unbounded = emitters_of(bounds=(-100, None)), emitters_of()
    for seed in range(3):
        one, other = ask(loose, loose.init(), seed), ask(unbounded, unbounded.init(), seed)
        jax.tree.map(partial(np.testing.assert_allclose, **SAME), one, other)


def test_a_box_replaces_only_the_draws_outside():
    # The step is a share of the width of the box.
    boxed, free = emitters_of(sigma0=0.5 / 2.4, bounds=(-1.2, 1.2)), emitters_of()
    inner = ask(boxed, boxed.init(), 0).solutions
    outer = ask(free, free.init(), 0).solutions
    was_inside = (np.abs(outer) <= 1.2).all(axis=1)
    assert 0 < was_inside.sum() < 18
    np.testing.assert_allclose(inner[was_inside], outer[was_inside], atol=1e-6)
    assert (inner[~was_inside] != outer[~was_inside]).any(axis=1).all()


@pytest.mark.parametrize("outside", ["clip", "reflect"])
def test_draws_outside_are_clipped_or_reflected(outside):
    # A mean on the edge in one dimension: half of the draws are outside.
    bounds = ([0.0, -np.inf, -np.inf], None)
    emitter = emitters_of(x0=np.zeros(SOL), bounds=bounds, outside=outside)
    free = emitters_of(x0=np.zeros(SOL))
    for seed in range(3):
        proposal, drawn = ask(emitter, emitter.init(), seed), ask(free, free.init(), seed).solutions
        first = np.maximum(drawn[:, 0], 0) if outside == "clip" else np.abs(drawn[:, 0])
        np.testing.assert_allclose(proposal.solutions[:, 0], first, **SAME)
        np.testing.assert_allclose(proposal.solutions[:, 1:], drawn[:, 1:], **SAME)
        # The noise is that of the step that was made.
        noise = proposal.aux.reshape(-1, SOL)
        np.testing.assert_allclose(proposal.solutions, 0.5 * noise, rtol=1e-6)


@pytest.mark.parametrize(
    "strategy", [CMAES(), SepCMAES(), LMMAES()], ids=lambda one: type(one).__name__
)
def test_noise_is_the_inverse_of_steps(strategy):
    @jax.jit  # one program in place of one for each operation
    def after_an_update(state, noise):
        solutions = state.mean + state.sigma * strategy.steps(state, noise)
        state = strategy.renew(strategy.update(state, solutions, noise, jnp.arange(8), 4))
        return state, strategy.noise_of(state, strategy.steps(state, noise))

    state = strategy.start(jnp.zeros(30), 0.3)
    for key in jax.random.split(jax.random.key(0), 3):
        noise = jax.random.normal(key, (8, 30))
        state, again = after_an_update(state, noise)
    np.testing.assert_allclose(again, noise, rtol=1e-4, atol=1e-5)


class OwnStrategy(Strategy):
    """A strategy with the required methods only, as users may write."""

    sep: SepCMAES = SepCMAES()

    def start(self, mean, sigma0):
        return self.sep.start(mean, sigma0)

    def steps(self, state, noise):
        return self.sep.steps(state, noise)

    def update(self, state, solutions, noise, order, parents):
        return self.sep.update(state, solutions, noise, order, parents)

    def degenerate(self, state):
        return self.sep.degenerate(state)


def test_only_bounds_need_the_noise_of_a_strategy():
    own, sep = (emitters_of(x0=np.zeros(SOL), strategy=s) for s in (OwnStrategy(), SepCMAES()))
    found, wanted = (ask(emitter, emitter.init(), 1).solutions for emitter in (own, sep))
    np.testing.assert_array_equal(found, wanted)
    bounded = emitters_of(x0=np.zeros(SOL), strategy=OwnStrategy(), bounds=(-1, None))
    with pytest.raises(NotImplementedError, match=r"expected a method noise_of.*OwnStrategy"):
        ask(bounded, bounded.init(), 1)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x0": [[0.0, 0.0]]}, r"x0: expected an array of 1 axes, got shape \(1, 2\)"),
        ({"x0": []}, r"x0: expected at least one number, got shape \(0,\)"),
        ({"x0": [0.0, np.nan]}, "x0: expected finite numbers, got 1 that are NaN or infinite"),
        ({"x0": ["a", "b"]}, "x0: expected an array of numbers, got an array of <U1"),
        ({"sigma0": 0}, "sigma0: expected a finite number > 0, got 0"),
        ({"sigma0": -0.5}, r"sigma0: expected a finite number > 0, got -0\.5"),
        ({"sigma0": np.inf}, "sigma0: expected a finite number > 0, got inf"),
        ({"sigma0": "0.5"}, "sigma0: expected a finite number > 0, got '0.5'"),
        ({"num_emitters": 0}, "emitters: expected a whole number >= 1, got 0"),
        ({"num_emitters": 1.5}, r"emitters: expected a whole number >= 1, got 1\.5"),
        ({"batch_size": 1}, "expected a whole number >= 2, got 1. CMA-ES ranks"),
        (
            {"restart": "basic"},
            "restart: expected RestartRule, got str 'basic'. Use Restart",
        ),
        ({"restart": 100}, "restart: expected RestartRule, got int 100"),
        ({"selection": "mu"}, "selection: expected SelectionRule, got str 'mu'. Use MuSelection"),
        ({"bounds": (1, -1)}, "bounds: expected lower < upper in every dimension"),
        ({"bounds": (np.nan, None)}, "bounds: expected lower < upper in every dimension"),
        (
            {"bounds": (0.5, None)},
            "x0: expected a point within .*, got 0 to 0. Move x0",
        ),
        ({"bounds": (None, [1, -1])}, "x0: expected a point within the bounds"),
        ({"bounds": ([-1, -1, -1], None)}, r"expected a scalar or 2 numbers, got shape \(3,\)"),
        ({"bounds": (None, "wide")}, "expected .*numbers, got"),
        ({"bounds": 3}, "bounds: expected a lower and an upper bound, got 3. Give bounds="),
        ({"sigma0": None}, "sigma0: expected a number for solutions without bounds"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        CmaEmitters(**({"x0": [0.0, 0.0], "sigma0": 0.5} | arguments))


@pytest.mark.parametrize("iterations", [0, -1, 2.5, "100"])
def test_a_schedule_needs_a_whole_number(iterations):
    with pytest.raises(ValueError, match=r"^iterations:.*1"):
        RestartEvery(iterations)


@pytest.mark.parametrize("outside", ["wrap", 5, []])
def test_outside_is_checked_without_bounds_as_well(outside):
    with pytest.raises(ValueError, match=r"^outside:.*'clip'.*'reflect'"):
        CmaEmitters(np.zeros(3), 0.2, outside=outside)
