"""Aimed CMA-ES: where instances start, how they rank, and how long they keep a target."""

import dataclasses
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
from gloam.emitters import (
    CMAES,
    LMMAES,
    AimedCmaEmitters,
    BasicRestart,
    CmaEmitters,
    SepCMAES,
)
from gloam.emitters.aimed_emitters import _COUNTS, _PATIENCE, _PROGRESS
from gloam.records import Distances, Feedback, Targets
from tests.helpers import assert_same_bits, targets_near

pytestmark = pytest.mark.slow  # searches of its own are compiled

EMITTERS, EACH, SOL = 3, 6, 4
SHAPE = (EMITTERS, EACH)
X0 = np.linspace(-1, 1, SOL)
SIZES = {"num_emitters": EMITTERS, "batch_size": EACH}
AIMED = AimedCmaEmitters(X0, 0.5, **SIZES)
PLAIN = CmaEmitters(X0, 0.5, **SIZES, restart=BasicRestart(), strategy=SepCMAES())
NONE = jnp.zeros((0, SOL))
STARTS = jnp.arange(EMITTERS * SOL, dtype=jnp.float32).reshape(EMITTERS, SOL)


@eqx.filter_jit
def ask(emitter, state, seed, starts=STARTS, are_empty=True):
    """Ask, with targets in cells ``seed``, ``seed + 1``, ... at whose nearest elites one starts."""

    def draw(number, *, tried, key):
        assert number == EMITTERS
        assert tried is state.tried
        zeros, cells = jnp.zeros((number, 1, 2)), seed + jnp.arange(number)
        empty = jnp.broadcast_to(jnp.asarray(are_empty), (number,))
        return Targets(cells, empty, zeros[:, 0], starts[:, None], zeros, empty[:, None])

    return emitter.ask(state, NONE, key=jax.random.key(seed), targets=draw)


@eqx.filter_jit
def adapt(emitter, state, proposal, told):
    elites = jnp.zeros((emitter.num_elites_to_adapt, SOL))
    return emitter.adapt(state, proposal, told, elites)


def flat(values, dtype) -> jax.Array:
    """Values of instances or of solutions, one after the other."""
    values = np.asarray(values)
    values = values[:, None] if values.ndim == 1 else values
    return jnp.asarray(np.broadcast_to(values, SHAPE).ravel(), dtype)


def told(
    squared, *, filled=False, improvements=0.0, accepted=False, used=None, valid=True, known=None
):
    """Feedback, of which each part may have a value for each instance."""
    return Feedback(
        improvements=flat(improvements, "float32"),
        accepted=flat(accepted, bool),
        filled=flat(False, bool),
        valid=flat(valid, bool),
        iteration=jnp.asarray(1),
        distances=Distances(
            flat(squared, "float32"),
            flat(valid if known is None else known, bool),
            flat(filled, bool),
        ),
        is_used=None if used is None else flat(used, bool),
        violations=None if known is None else flat(~np.asarray(valid), "float32"),
    )


def random_squares(seed: int) -> np.ndarray:
    """Squared distances between 1 and 2 that all differ."""
    return 1 + np.random.default_rng(seed).random(SHAPE)


def begun(iterations: int = 1):
    """A state after some iterations, and the next proposal."""
    state = AIMED.init()
    for seed in range(iterations):
        proposal = ask(AIMED, state, 100)
        state = adapt(AIMED, state, proposal, told(0.9**seed * random_squares(seed)))
    return state, ask(AIMED, state, 200)


def means(state) -> np.ndarray:
    return np.asarray(state.instances.gaussians.mean)


def test_an_instance_starts_at_the_elite_of_its_target():
    proposal = ask(AIMED, AIMED.init(), 40)
    solutions = np.asarray(proposal.solutions).reshape(*SHAPE, SOL)
    noise = proposal.aux[0]
    np.testing.assert_allclose(solutions, STARTS[:, None] + 0.5 * noise, rtol=1e-5, atol=1e-6)
    assert proposal.targets.tolist() == np.repeat([40, 41, 42], EACH).tolist()


def test_in_a_search_it_is_the_elite_with_the_nearest_measures():
    archive = gloam.GridArchive((4, 6), -2.0, 2.0)
    used = gloam.Algorithm(AimedCmaEmitters(X0, 1e-3, **SIZES), archive, NoDiscount())
    state = jax.jit(partial(step.init, used))(root_key(2))
    # An elite in each corner. A cell is wider in the first measure.
    corners = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2]], np.float32)
    solutions = np.concatenate([corners, corners], axis=1)
    cells = archive.index_of(jnp.asarray(corners))
    store = filled_store(archive, solutions, np.ones(4), corners, cells, {})
    proposal = jax.jit(partial(step.ask, used))(dataclasses.replace(state, store=store))
    targets = np.asarray(archive.centers_of(proposal.targets))
    assert not np.isin(proposal.targets, cells).any()
    for center, solution in zip(targets, np.asarray(proposal.solutions), strict=True):
        distances = np.linalg.norm((corners - center) / [1.0, 4 / 6], axis=1)
        np.testing.assert_allclose(solution, solutions[np.argmin(distances)], atol=0.01)


def test_a_target_stays_until_it_is_filled_by_anyone():
    state, proposal = begun(3)
    assert not state.is_waiting.any()
    assert proposal.targets.tolist() == np.repeat([100, 101, 102], EACH).tolist()
    after = adapt(AIMED, state, proposal, told(random_squares(9), filled=[False, True, False]))
    assert after.is_waiting.tolist() == [False, True, False]
    assert (after.reached, after.instances.restarts) == (1, 1)
    assert AIMED.metrics(after) == {"restarts": 1, "reached": 1}
    # It begins at the next target, and the others go on.
    proposal = ask(AIMED, after, 300)
    assert proposal.targets.tolist() == np.repeat([100, 301, 102], EACH).tolist()
    again = adapt(AIMED, after, proposal, told(random_squares(8)))
    assert again.cells.tolist() == [100, 301, 102]
    assert again.instances.gaussians.generation.tolist() == [5, 1, 5]
    assert (again.reached, again.instances.restarts) == (1, 1)


def test_every_beginning_counts_as_a_try_of_the_target():
    state, proposal = begun(3)
    assert state.tried.sum() == EMITTERS
    assert (state.tried[100:103] == 1).all()
    news = {"filled": [True, True, False], "used": [True, True, False]}
    state = adapt(AIMED, state, proposal, told(random_squares(9), **news))
    # The first begins at cell 101 again. The second rests, and begins later.
    proposal = ask(AIMED, state, 101)
    state = adapt(AIMED, state, proposal, told(random_squares(9), used=[True, False, True]))
    assert state.tried[100:104].tolist() == [1, 2, 1, 0]
    # Cells of a large archive share counts.
    large = eqx.tree_at(lambda s: s.cells, state, jnp.asarray([0, 3 + 2 * _COUNTS, 0]))
    large = adapt(AIMED, large, ask(AIMED, large, 101 + _COUNTS), told(random_squares(9)))
    assert large.tried[100:104].tolist() == [1, 2, 2, 0]


def test_cells_out_of_reach_are_tried_equally_often():
    """All solutions land in one cell, so that every other cell is a target again and again."""
    archive = gloam.GridArchive((4, 5), -2.0, 2.0)
    search = gloam.Search(gloam.Algorithm(AIMED, archive, NoDiscount()), seed=0)
    for _ in range(40):
        number = len(search.ask())
        search.tell(np.ones(number), np.zeros((number, 2)))
    tried = np.delete(search.state.emitter.tried[:20], archive.index_of(np.zeros((1, 2))))
    assert tried.sum() > 5 * len(tried)
    # Instances that begin in the same iteration may draw the same cell.
    assert np.ptp(tried) <= EMITTERS


def iterations_until_waiting(factor: float, most: int = 60) -> list[int]:
    """Iteration in which each instance gives up if its smallest distance falls by a factor."""
    state, found = AIMED.init(), np.zeros(EMITTERS, int)
    ranks = 1 + np.arange(EACH) / EACH
    for iteration in range(1, most + 1):
        # Fixed ranks would make Gaussians degenerate.
        order = np.random.default_rng(iteration).permutation(EACH)
        proposal = ask(AIMED, state, 100)
        squares = np.tile(factor**iteration * ranks[order], (EMITTERS, 1))
        state = adapt(AIMED, state, proposal, told(squares))
        found = np.where((found == 0) & state.is_waiting, iteration, found)
        if found.all():
            break
    return found.tolist()


def test_a_target_is_given_up_when_the_distance_no_longer_falls():
    # The first distance is progress; nothing after it is.
    assert iterations_until_waiting(1.0) == [1 + _PATIENCE] * EMITTERS
    too_slow = (1 - _PROGRESS) ** (0.5 / _PATIENCE)
    assert iterations_until_waiting(too_slow) == [1 + _PATIENCE] * EMITTERS
    # As slow as it may be: just enough over several iterations.
    assert iterations_until_waiting((1 - _PROGRESS) ** (2 / _PATIENCE)) == [0] * EMITTERS


def test_a_degenerate_or_flat_instance_begins_again():
    state, proposal = begun()
    sigma = state.instances.gaussians.sigma.at[2].set(1e-30)
    state = eqx.tree_at(lambda s: s.instances.gaussians.sigma, state, sigma)
    squares = random_squares(1)
    squares[0] = 1.0
    after = adapt(AIMED, state, proposal, told(squares))
    assert after.is_waiting.tolist() == [True, False, True]
    assert (after.reached, after.instances.restarts) == (0, 2)


@pytest.mark.parametrize("strategy", [SepCMAES(), pytest.param(CMAES(), marks=pytest.mark.release)])
def test_ranks_are_those_of_the_distances(strategy):
    """The update is that of CMA-ES whose improvements are the negative squared distances."""
    aimed = AimedCmaEmitters(X0, 0.5, **SIZES, strategy=strategy)
    plain = CmaEmitters(X0, 0.5, **SIZES, restart=BasicRestart(), strategy=strategy)
    state, other = aimed.init(), plain.started_at(plain.init(), STARTS)
    for seed in range(4):
        proposal = ask(aimed, state, seed)
        asked = eqx.filter_jit(plain.ask)(other, NONE, key=jax.random.key(seed))
        np.testing.assert_allclose(proposal.solutions, asked.solutions, rtol=1e-6)
        squares = random_squares(seed)
        # Improvements and successes do not matter.
        news = told(squares, improvements=random_squares(50 + seed), accepted=seed % 2 == 0)
        state = adapt(aimed, state, proposal, news)
        other = adapt(plain, other, asked, told(0.0, improvements=-squares))
        for one, two in zip(*map(jax.tree.leaves, (state.instances, other)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_solutions_too_far_from_all_items_rank_by_the_distance_to_the_target_too():
    """A valid solution that is farther from the target ranks below an infeasible one."""
    state, proposal = begun()
    valid, known = np.ones(SHAPE, bool), np.ones(SHAPE, bool)
    valid[0], valid[1, ::2] = False, False
    squares = random_squares(1)
    some = adapt(AIMED, state, proposal, told(squares, valid=valid, known=known))
    every = adapt(AIMED, state, proposal, told(squares, known=known))
    for one, two in zip(jax.tree.leaves(some), jax.tree.leaves(every), strict=True):
        np.testing.assert_array_equal(one, two)
    # Those of which no distance is known rank last, whatever it is.
    known[1, ::2] = False
    squares[1, ::2] = 0.0
    some = adapt(AIMED, state, proposal, told(squares, valid=valid, known=known))
    squares[1, ::2] = 9.0 + np.arange(EACH)[::2]
    every = adapt(AIMED, state, proposal, told(squares))
    np.testing.assert_allclose(means(some)[1], means(every)[1], rtol=1e-5)


def test_in_a_full_archive_ranks_are_those_of_the_improvements():
    state, other = AIMED.init(), PLAIN.started_at(PLAIN.init(), STARTS)
    for seed in range(3):
        proposal = ask(AIMED, state, seed, are_empty=False)
        asked = eqx.filter_jit(PLAIN.ask)(other, NONE, key=jax.random.key(seed))
        values = random_squares(seed)
        # Cells that have an elite are not reached, and distances do not matter.
        news = told(random_squares(50 + seed), improvements=values, filled=True)
        state = adapt(AIMED, state, proposal, news)
        other = adapt(PLAIN, other, asked, told(0.0, improvements=values))
        for one, two in zip(*map(jax.tree.leaves, (state.instances, other)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    assert (state.reached, state.is_waiting.any()) == (0, False)
    # Progress is an improvement of the archive.
    assert state.idle.tolist() == [2, 2, 2]
    news = told(1.0, improvements=random_squares(4), accepted=[False, True, False])
    state = adapt(AIMED, state, ask(AIMED, state, 4), news)
    assert state.idle.tolist() == [3, 0, 3]


def rows(tree, index):
    return [leaf[index] for leaf in jax.tree.leaves(tree) if leaf.ndim]


def idle_once_more(state):
    return dataclasses.replace(state, idle=state.idle + 1)


@pytest.mark.parametrize("iterations", [0, 2])
def test_an_instance_that_is_not_used_stays_as_it_is(iterations):
    state, proposal = (AIMED.init(), ask(AIMED, AIMED.init(), 100))
    if iterations:
        state, proposal = begun(iterations)
    news = {"filled": [True, True, False], "used": [False, True, True]}
    after = adapt(AIMED, state, proposal, told(random_squares(7), **news))

    assert_same_bits(rows(after, 0), rows(idle_once_more(state), 0))
    everyone = adapt(AIMED, state, proposal, told(random_squares(7), filled=[True, True, False]))
    for index in (1, 2):
        for one, other in zip(rows(after, index), rows(everyone, index), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    # Only what was used counts.
    assert (after.reached, after.instances.restarts) == (1, 1)


def test_after_a_long_rest_an_instance_begins_anew():
    state, proposal = begun(2)
    state = eqx.tree_at(lambda s: s.idle, state, jnp.asarray([_PATIENCE - 2, 0, 0]))
    first = adapt(AIMED, state, proposal, told(random_squares(7), used=[False, True, True]))
    assert not first.is_waiting.any()
    second = adapt(AIMED, first, proposal, told(random_squares(8), used=[False, True, True]))
    assert second.is_waiting.tolist() == [True, False, False]
    # It has a new target as soon as it works, which counts as no restart.
    assert ask(AIMED, second, 300).targets[0] == 300
    assert second.instances.restarts == 0
    waits = dataclasses.replace(idle_once_more(idle_once_more(state)), is_waiting=second.is_waiting)
    assert_same_bits(rows(second, 0), rows(waits, 0))


@pytest.mark.parametrize("is_used", [None, [True, True, False]])
def test_failed_evaluations_rank_last_and_an_instance_without_others_begins_again(is_used):
    state, proposal = begun(2)
    squares, valid = random_squares(3), np.ones(SHAPE, bool)
    # As of a step: rows that failed have measures of zero, which may be near to the target.
    squares[0, :3], valid[0, :3] = 0.0, False
    squares[1], valid[1] = 0.0, False
    after = adapt(AIMED, state, proposal, told(squares, valid=valid, used=is_used))
    assert after.is_waiting.tolist() == [False, True, False]
    worst = np.where(valid, squares, 10.0 + np.arange(EACH))
    expected = adapt(AIMED, state, proposal, told(worst, used=is_used))
    # Three parents are left of six solutions, as usual.
    np.testing.assert_allclose(means(after)[0], means(expected)[0], rtol=1e-6)
    assert after.smallest[0] == pytest.approx(min(state.smallest[0], squares[0, 3:].min()))
    assert np.isfinite(means(after)).all()


def linear(solutions):
    return 1.0 - jnp.square(solutions).sum(axis=1) / 100, 2 * solutions[:, :2]


def failing(solutions):
    objectives, measures = linear(solutions)
    fails = jnp.sin(1e4 * solutions[:, 2]) > 0
    return jnp.where(fails, jnp.nan, objectives), jnp.where(fails[:, None], jnp.inf, measures)


GRID = gloam.GridArchive((5, 5), -2.0, 2.0)
SPACE = gloam.Space(
    real=gloam.Real(-1.5, 1.5, shape=(2,)),
    count=gloam.Integer(0, 9),
    kind=gloam.Categorical(["a", "b", "c"]),
)


def of_space(values):
    measures = 2 * values["real"]
    return 1.0 - 0.01 * values["count"] - 0.1 * (values["kind"] == 1), measures


CASES = {
    "grid": (GRID, X0, {}, linear),
    "failures": (GRID, X0, {"bounds": (-1.2, 1.2)}, failing),
    "space": (GRID, SPACE, {}, of_space),
    "no objective": (
        gloam.CVTArchive(np.random.default_rng(0).uniform(-2, 2, (25, 2))),
        X0,
        {},
        lambda solutions: (None, 2 * solutions[:, :2]),
    ),
}
_CASES = [
    pytest.param(name, marks=[pytest.mark.release] if name in ("grid", "no objective") else [])
    for name in CASES
]


@pytest.mark.parametrize("name", _CASES)
def test_a_search_fills_cells_that_are_aimed_at(name):
    archive, x0, options, evaluate = CASES[name]
    steps = {} if name in ("failures", "space") else {"sigma0": 0.2}
    aimed = AimedCmaEmitters(x0, **steps, **SIZES, **options)
    used = gloam.Algorithm(aimed, archive, NoDiscount())
    result = gloam.run(evaluate, used, 100, seeds=[1], log_every=50, progress=False)
    rows = result.metrics
    # Seeds 0 to 9 fill all cells in half of the time, and reach 7 to 21 targets.
    assert rows["coverage"].iloc[-1] == 1.0
    assert rows["reached"].iloc[-1] >= 5
    assert np.isfinite(result.elites.solutions).all()
    if name == "failures":
        assert rows["failed_total"].iloc[-1] > 200
        assert np.abs(result.elites.solutions).max() <= np.float32(1.2)
    if name == "space":
        values = result.elites.values()
        assert set(values["kind"]) <= {"a", "b", "c"}
        assert set(values["count"]) <= set(range(10))


def test_parts_are_emitters_with_fewer_instances():
    state, _ = begun(2)
    assert (AIMED.num_parts, AIMED.divides_into(3), AIMED.divides_into(2)) == (3, True, False)
    part = AIMED.part(3)
    assert (part.num_emitters, part.num_solutions) == (1, EACH)
    whole = AIMED.init()
    for index in range(3):
        own = AIMED.part_state(state, jnp.asarray(index), 3)
        np.testing.assert_array_equal(own.cells, state.cells[index : index + 1])
        whole = AIMED.with_part_state(whole, jnp.asarray(index), 3, own)
    assert_same_bits(whole, state)


def test_settings():
    assert isinstance(AIMED.instances.strategy, SepCMAES)
    large = AimedCmaEmitters(np.zeros(100), 0.1, strategy=LMMAES())
    assert (large.num_solutions, large.instance_size, large.label) == (540, 36, "aimed")
    assert isinstance(large.instances.strategy, LMMAES)


@pytest.mark.parametrize("kind", ["aimed", "moves", "ascent"])
def test_targets_have_a_key_of_their_own(kind):
    """A draw with a key shares its bits with the keys split from it."""
    x0 = np.zeros(3)
    emitter = {
        "aimed": lambda: gloam.emitters.AimedCmaEmitters(x0, 0.3, num_emitters=2, batch_size=4),
        "moves": lambda: gloam.emitters.AimedMoves(x0, 0.3, batch_size=4),
        "ascent": lambda: gloam.emitters.GradientAscent(x0, 0.3, goal="target", batch_size=4),
    }[kind]()
    key, seen = jax.random.key(3), []

    def targets(number, *, num_near=1, key, **_):
        jax.debug.callback(lambda words: seen.append(words.tolist()), jax.random.key_data(key))
        return targets_near(jnp.zeros((5, 3)))(number, num_near=num_near, key=key)

    emitter.ask(emitter.init(), jnp.zeros((0, 3)), key=key, targets=targets)
    jax.effects_barrier()
    assert len(seen) == 1
    assert jax.random.key_data(key).tolist() != seen[0]
    split = [jax.random.key_data(jax.random.split(key, 3)[index]).tolist() for index in (0, 1)]
    assert seen[0] not in split
