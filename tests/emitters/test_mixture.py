"""Emitters made of emitters: every part does what it does alone, and its own rows count for it.

Those of an `AdaptiveMixture` share a batch, in shares that follow what they bring.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam.emitters import (
    AdaptiveMixture,
    AimedCmaEmitters,
    AimedMoves,
    CmaEmitters,
    GradientAscent,
    Mixture,
    Recombination,
    Swaps,
    Variation,
)
from gloam.records import Climb, Distances, Feedback, Proposal
from tests.helpers import assert_same_bits, refused, targets_near

pytestmark = pytest.mark.slow  # searches of its own are compiled

X0 = np.zeros(4)
CMA = CmaEmitters(X0, 0.5, num_emitters=2, batch_size=6)
LINE = Variation(X0, 0.1, line_sigma=0.5, batch_size=5)
MIXTURE = Mixture([CMA, LINE])
KEY = jax.random.key(3)
ELITES = jax.random.normal(jax.random.key(1), (10, 4))


@eqx.filter_jit
def ask(emitter, state, elites, key):
    return emitter.ask(state, elites, key=key)


@eqx.filter_jit
def adapt(emitter, state, proposal, feedback, elites):
    return emitter.adapt(state, proposal, feedback, elites)


def test_a_batch_is_the_batches_of_the_parts():
    state = MIXTURE.init()
    proposal = ask(MIXTURE, state, ELITES, KEY)
    first, second = jax.random.split(KEY)
    alone = ask(CMA, CMA.init(), ELITES[:0], first), ask(LINE, None, ELITES, second)
    expected = np.concatenate([part.solutions for part in alone])
    np.testing.assert_array_equal(proposal.solutions, expected)
    assert len(proposal.solutions) == MIXTURE.num_solutions == 17
    assert [draw.number for draw in MIXTURE.elites_to_ask] == [10]
    assert MIXTURE.num_elites_to_adapt == 2


def told(rows: slice = slice(None)) -> Feedback:
    values = jnp.sin(jnp.arange(17.0))
    improved, filled = values > 0, values > 0.5
    valid = jnp.arange(17) != 4
    everything = values, improved, filled, valid
    return Feedback(*(array[rows] for array in everything), jnp.asarray(1))


def test_every_part_learns_from_its_own_rows():
    state = MIXTURE.init()
    proposal = ask(MIXTURE, state, ELITES, KEY)
    after = adapt(MIXTURE, state, proposal, told(), ELITES[:2])
    own = Proposal(proposal.solutions[:12], proposal.aux[0])
    alone = adapt(CMA, CMA.init(), own, told(slice(12)), ELITES[:2])
    assert_same_bits(after.emitters[0], alone)
    improved, filled = np.asarray(told().accepted), np.asarray(told().filled)
    assert after.accepted.tolist() == [improved[:12].sum(), improved[12:].sum()]
    assert after.filled.tolist() == [filled[:12].sum(), filled[12:].sum()]
    again = adapt(MIXTURE, after, proposal, told(), ELITES[:2])
    assert again.accepted.tolist() == [2 * n for n in after.accepted.tolist()]


def search_of(discount) -> gloam.Algorithm:
    archive = gloam.GridArchive((8, 8), -1, 1)
    pieces = {
        "model": gloam.discounts.DiscountModel(num_init_points=16),
        "thresholds": gloam.discounts.Thresholds(),
        "none": gloam.discounts.NoDiscount(),
    }
    return gloam.Algorithm(MIXTURE, archive, pieces[discount])


def evaluate(x):
    return 1 - (x**2).sum(axis=1), x[:, :2]


@pytest.mark.release
@pytest.mark.parametrize(
    "discount",
    ["none", *(pytest.param(n, marks=pytest.mark.release) for n in ("model", "thresholds"))],
)
def test_every_discount_searches_with_it(discount):
    result = gloam.run(evaluate, search_of(discount), 3, log_every=1, progress=False)
    rows = result.metrics
    labels = ["cma_es", "variation"]
    filled = rows[[f"{label}_filled" for label in labels]].sum(axis=1)
    np.testing.assert_allclose(filled, rows["coverage"] * 64)
    accepted = rows[[f"{label}_accepted" for label in labels]].sum(axis=1)
    assert (accepted >= filled).all()
    assert (rows["restarts"] == rows["cma_es_restarts"]).all()


def test_a_mixture_is_divided_where_all_its_emitters_are():
    line = Variation(np.zeros(4), 0.1, line_sigma=0.5, batch_size=6)
    mixture = Mixture([CMA, line])
    assert mixture.num_parts == CMA.num_emitters == 2
    assert mixture.part(2).num_solutions * 2 == mixture.num_solutions
    state = mixture.init()
    part = mixture.part_state(state, jnp.asarray(1), 2)
    assert_same_bits(part.emitters[0], CMA.part_state(state.emitters[0], jnp.asarray(1), 2))
    assert_same_bits(mixture.with_part_state(state, jnp.asarray(1), 2, part), state)
    assert MIXTURE.num_parts == 1  # five line moves cannot be halved
    assert MIXTURE.part(1) is MIXTURE


def test_parts_of_one_kind_are_numbered():
    assert Mixture([LINE, CMA, LINE]).labels == ["variation_1", "cma_es", "variation_2"]


def test_wrong_parts_are_refused():
    with refused("emitters: expected a list of emitters"):
        Mixture([])
    with refused("emitters: expected Emitter"):
        Mixture([CMA, 3])
    with refused("emitters: expected emitters for solutions of one size, got sizes [4, 3]"):
        Mixture([CMA, Variation(np.zeros(3), 0.1)])


EACH, SLOTS = 4, 3
BATCH = EACH * SLOTS
CMA_3 = CmaEmitters(X0, 0.5, num_emitters=SLOTS, batch_size=EACH)
AIMED = AimedCmaEmitters(X0, 0.5, num_emitters=SLOTS, batch_size=EACH)
MOVES, SWAPS = Recombination(X0, 0.5, batch_size=BATCH), Swaps(X0, 0.5, batch_size=BATCH)
CLIMBS = [GradientAscent(X0, 0.5, batch_size=EACH, goal=goal) for goal in ("improvement", "target")]
AIMED_MOVES = AimedMoves(X0, 0.5, batch_size=BATCH)
EQUAL = AdaptiveMixture([CMA_3, MOVES, SWAPS], window=36.0)
# Two small emitters, which can have the first slot.
ALL = AdaptiveMixture([*CLIMBS, CMA_3, MOVES, SWAPS, AIMED, AIMED_MOVES], window=36.0)
KINDS = len(ALL.emitters)
# The same with more slots for CMA-ES, and often a small emitter before it.
LEAST = [0.1, 0.05, 0.35, 0.02, 0.02, 0.1, 0.02]
UNEVEN = AdaptiveMixture(ALL.emitters, least=LEAST, window=36.0)


FIRST = {len(mixture.emitters): mixture.init() for mixture in (EQUAL, ALL)}


def brought(mixture, tried, gained):
    """State of a mixture after its emitters brought this."""
    counts = [np.asarray(numbers, np.float32) for numbers in (tried, gained)]
    first = FIRST[len(mixture.emitters)]
    return eqx.tree_at(lambda state: [state.tried, state.gained], first, counts)


@eqx.filter_jit
def shares_after(mixture, state):
    return mixture.shares(state)


def shares(mixture, tried, gained) -> np.ndarray:
    return np.asarray(shares_after(mixture, brought(mixture, tried, gained)))


def test_shares_worked_by_hand():
    # 0.02, 0.01 and nothing for each solution: 2 to 1 to 0, beyond 2% for everyone.
    expected = 0.02 + 0.94 * np.array([2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(shares(EQUAL, [1000, 50, 9], [20, 0.5, 0]), expected, rtol=1e-6)
    even = np.full(3, 1 / 3)
    np.testing.assert_allclose(shares(EQUAL, [0, 0, 0], [0, 0, 0]), even, rtol=1e-6)
    np.testing.assert_allclose(shares(EQUAL, [9, 9, 9], [0, 0, 0]), even, rtol=1e-6)
    # One that was not tried yet may be as good as the best.
    expected = 0.02 + 0.94 * np.array([0.5, 0.0, 0.5])
    np.testing.assert_allclose(shares(EQUAL, [9, 9, 0], [5, 0, 0]), expected, rtol=1e-6)


def test_smallest_shares_worked_by_hand():
    mixture = AdaptiveMixture([CMA_3, MOVES, SWAPS], least=[0.5, 0.1, 0])
    expected = np.array([0.5, 0.1, 0]) + 0.4 * np.array([0, 0.25, 0.75])
    np.testing.assert_allclose(shares(mixture, [9, 9, 9], [0, 1, 3]), expected, rtol=1e-6)
    # As long as nobody gained anything, all have the same beyond their smallest shares.
    expected = np.array([0.5, 0.1, 0]) + 0.4 / 3
    np.testing.assert_allclose(shares(mixture, [9, 9, 9], [0, 0, 0]), expected, rtol=1e-6)
    # Without smallest shares, whoever gains nothing has nothing.
    mixture = AdaptiveMixture([CMA_3, MOVES, SWAPS], least=[0, 0, 0])
    found = shares(mixture, [9, 9, 9], [0, 0, 1])
    np.testing.assert_allclose(found, [0, 0, 1], atol=1e-7)


def test_what_is_above_two_percent_falls_with_the_part_of_new_cells():
    mixture = AdaptiveMixture([CMA_3, MOVES, SWAPS], least=[0.5, 0.1, 0])
    state = brought(mixture, [9, 9, 9], [0, 0, 1])
    for part, expected in ((1, [0.5, 0.1]), (0.25, [0.14, 0.04]), (0, [0.02, 0.02])):
        recent = [np.float32(8), np.float32(8 * part)]
        mixed = eqx.tree_at(lambda s: [s.recent_gain, s.recent_new], state, recent)
        expected = [*expected, 1 - sum(expected)]
        np.testing.assert_allclose(shares_after(mixture, mixed), expected, rtol=1e-5)


def test_shares_of_small_emitters_worked_by_hand():
    # Both small ones would have more than the one slot that they share: each keeps its 2%, and the
    # rest of the slot is divided as 2 to 1. The others divide the rest of the batch as usual.
    first = 0.02 + (1 / 3 - 0.04) * np.array([2, 1]) / 3
    rest = 0.02 + 0.86 * np.array([1, 0, 0, 0, 0]) / 4
    expected = [*first, *(2 / 3 * rest / rest.sum())]
    found = shares(ALL, np.full(KINDS, 100), [2, 1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # What fits stays as it is.
    found = shares(ALL, np.full(KINDS, 100), [0, 0, 1, 2, 0, 0, 0])
    expected = 0.02 + 0.86 * np.array([0, 0, 1, 2, 0, 0, 0]) / 3
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("gained", [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
def test_smallest_shares_of_small_emitters_shrink_to_their_slot(gained):
    # 0.4 and 0.2 are more than the slot: they share it as 2 to 1, whatever they bring.
    mixture = AdaptiveMixture([*CLIMBS, CMA_3], least=[0.4, 0.2, 0.1])
    found = shares(mixture, [9, 9, 9], gained)
    np.testing.assert_allclose(found, [2 / 9, 1 / 9, 2 / 3], rtol=1e-5)


def test_what_a_small_emitter_leaves_goes_to_others_that_bring_nothing():
    mixture = AdaptiveMixture([CLIMBS[0], CMA_3, MOVES], least=[0, 0, 0])
    found = shares(mixture, [9, 9, 9], [1, 0, 0])
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 1 / 3], rtol=1e-5)


def test_wrong_smallest_shares_are_refused():
    message = "least: expected 3 shares from 0 with a sum of less than 1"
    for least in ([0.1, 0.1], [0.1] * 4, [0.5, 0.6, -0.2], [0.5, 0.3, 0.2], [0.9, 0.3, 0]):
        with refused(message, least[-1]):
            AdaptiveMixture([CMA_3, MOVES, SWAPS], least=least)
    with refused("least: expected finite numbers"):
        AdaptiveMixture([CMA_3, MOVES, SWAPS], least=[0.1, np.nan, 0.1])


tries = st.lists(st.floats(1, 1e6), min_size=KINDS, max_size=KINDS)
amounts = st.lists(st.floats(0, 1e9), min_size=KINDS, max_size=KINDS)


@settings(max_examples=50)
@given(
    tries,
    amounts,
    st.integers(0, KINDS - 1),
    st.floats(0, 1e9),
    st.sampled_from([1e-12, 1.0, 1e18]),
)
def test_shares_are_within_limits_and_follow_what_emitters_bring(tried, gained, which, more, unit):
    gained = np.array(gained)
    found = shares(ALL, tried, unit * gained)
    assert found.sum() == pytest.approx(1, abs=1e-5)
    # A small emitter may pass its slot on, and nobody has less than the smallest share.
    assert (found >= 0.02 - 1e-6).all()
    assert found[:2].sum() <= 1 / SLOTS + 1e-6
    gained[which] += more
    assert shares(ALL, tried, unit * gained)[which] >= found[which] - 1e-5


@pytest.mark.parametrize("gained", [[1, 2, 3, 2, 0, 1, 4], [5, 4, 1, 0, 0, 0, 0], [0] * 6 + [9]])
def test_slots_follow_the_shares(gained):
    state = brought(ALL, np.full(KINDS, 100), gained)
    number = 4000
    keys = jax.random.split(jax.random.key(0), number)
    kinds = np.asarray(jax.jit(jax.vmap(lambda key: ALL._kinds(state, key=key)))(keys))
    counts = np.bincount(kinds.ravel(), minlength=KINDS) / number / SLOTS
    # Four standard errors of a slot that is drawn or not.
    np.testing.assert_allclose(counts, ALL.shares(state), atol=4 * 0.5 / np.sqrt(number) / SLOTS)
    # Slots are in the order of the emitters, of which small ones have the first slot only.
    assert not np.isin(kinds[:, 1:], [0, 1]).any()
    assert (np.diff(kinds, axis=1) >= 0).all()


def test_elites_are_asked_for_as_one_emitter_with_all_slots():
    # Each slot needs 4 tournaments, by moves and ascent, and up to 8 more elites, by swaps.
    assert [tuple(draw) for draw in ALL.elites_to_ask] == [(SLOTS * 8, 1), (SLOTS * 4, 4)]
    assert (ALL.num_solutions, ALL.num_slots, ALL.instance_size) == (BATCH, SLOTS, EACH)
    np.testing.assert_array_equal(ALL.gradient_rows, np.arange(EACH))


NUM_PARENTS = sum(draw.number for draw in ALL.elites_to_ask)
PARENTS = jax.random.normal(jax.random.key(2), (NUM_PARENTS, 4))


@eqx.filter_jit
def ask_all(state, key):
    return UNEVEN.ask(state, PARENTS, key=key, targets=targets_near(PARENTS))


def told_all(seed: int) -> Feedback:
    """Feedback of a whole batch."""
    random = np.random.default_rng(seed)

    def chance(share):
        return jnp.asarray(random.random(BATCH) < share)

    values = jnp.asarray(random.normal(size=BATCH), jnp.float32)
    accepted, was_empty = chance(0.6), chance(0.4)
    valid = accepted | chance(0.8)
    gradients = jnp.asarray(random.normal(size=(BATCH, 4)), jnp.float32)
    return Feedback(
        improvements=values,
        accepted=accepted,
        filled=accepted & was_empty & chance(0.7),
        valid=valid,
        iteration=jnp.asarray(1 + seed),
        climb=Climb(gradients, jnp.ones(BATCH, bool)),
        was_empty=was_empty,
        gains=jnp.where(accepted, jnp.asarray(random.random(BATCH), jnp.float32), 0.0),
        distances=Distances(jnp.square(values), valid, chance(0.2)),
    )


@functools.cache
def batches() -> list:
    """States, proposals, feedback and states after it, of a mixture of everything."""
    state, found = FIRST[KINDS], []
    for seed in range(16):
        proposal, told = ask_all(state, jax.random.key(seed)), told_all(seed)
        after = adapt(UNEVEN, state, proposal, told, PARENTS[:SLOTS])
        found.append((state, proposal, told, after))
        state = after
    assert {kind for batch in found for kind in batch[1].aux[1].tolist()} == set(range(KINDS))
    return found


def rows_of(emitter_state, index: int, number: int):
    """What one of ``number`` instances or points has of a state."""
    leaves = [leaf for leaf in jax.tree.leaves(emitter_state) if leaf.ndim and len(leaf) == number]
    assert leaves
    return [leaf[index] for leaf in leaves]


def test_whoever_has_no_slot_rests():
    """Of an emitter with two slots, the first two parts work, wherever the slots are."""
    seen = set()
    for before, proposal, _, after in batches():
        kinds = proposal.aux[1]
        for place in (2, 5):  # instances of CMA-ES
            number = int((kinds == place).sum())
            seen.add((place, number))
            for part in range(SLOTS):
                # Aimed instances count how long they rest.
                states = [
                    getattr(state, "instances", state)
                    for state in (before.emitters[place], after.emitters[place])
                ]
                old, new = (rows_of(state, part, SLOTS) for state in states)
                if part >= number:
                    assert_same_bits(new, old)
                else:
                    assert any((one != other).any() for one, other in zip(old, new, strict=True))
        for place in (0, 1):  # gradients
            old, new = (whole.emitters[place] for whole in (before, after))
            if kinds[0] != place:
                assert_same_bits(new.points, old.points)
                np.testing.assert_array_equal(new.logs, old.logs)
                assert (new.restarts, new.failed) == (old.restarts, old.failed)
            else:
                assert (new.points.solutions != old.points.solutions).any()
    assert seen >= {(2, 1), (2, 2), (5, 0), (5, 1)}


def moved_to_first_parts(rows, slots):
    """Rows of these slots first, then those of the others."""
    order = [*slots, *sorted(set(range(SLOTS)) - set(slots))]
    by_slot = np.asarray(rows).reshape(SLOTS, -1, *rows.shape[1:])
    return jnp.asarray(by_slot[order].reshape(rows.shape))


@pytest.mark.parametrize("place", [2, 5])
def test_whoever_has_a_slot_adapts_as_alone(place):
    emitter, moved = ALL.emitters[place], 0
    for before, proposal, told, after in batches():
        aux, kinds = proposal.aux
        slots = np.flatnonzero(kinds == place).tolist()
        of_parts = functools.partial(moved_to_first_parts, slots=slots)
        alone = dataclasses.replace(told, gains=None, climb=None)
        alone = jax.tree.map(lambda leaf, of=of_parts: of(leaf) if leaf.ndim else leaf, alone)
        own = Proposal(of_parts(proposal.solutions), jax.tree.map(of_parts, aux[place]))
        elites = PARENTS[: emitter.num_elites_to_adapt]
        expected = adapt(emitter, before.emitters[place], own, alone, elites)
        found, expected = (
            getattr(state, "instances", state).gaussians
            for state in (after.emitters[place], expected)
        )
        for part, slot in enumerate(slots):
            moved += part != slot
            pair = rows_of(found, part, SLOTS), rows_of(expected, part, SLOTS)
            for one, other in zip(*pair, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert moved > 3


def test_the_first_slot_of_an_emitter_is_for_its_first_part():
    """Instances that are far apart show which of them proposed what."""
    start = FIRST[KINDS]
    # CMA-ES has one or two slots; an emitter before it often has the first one.
    state = brought(UNEVEN, np.full(KINDS, 100), [4, 0, 4, 4, 0, 0, 0])
    places = jnp.asarray([0.0, 1000.0, 2000.0])
    means = jnp.broadcast_to(places[:, None], start.emitters[2].gaussians.mean.shape)
    generations = jnp.ones_like(start.emitters[2].gaussians.generation)
    state = eqx.tree_at(
        lambda s: [s.emitters[2].gaussians.mean, s.emitters[2].gaussians.generation],
        state,
        [means, generations],
    )
    seen = set()
    for seed in range(12):
        proposal = ask_all(state, jax.random.key(seed))
        slots = np.flatnonzero(proposal.aux[1] == 2)
        seen.add(tuple(slots.tolist()))
        by_slot = np.asarray(proposal.solutions).reshape(SLOTS, EACH, 4)
        for part, slot in enumerate(slots):
            np.testing.assert_allclose(by_slot[slot], places[part], atol=10.0)
    assert any(slots and slots[0] > 0 for slots in seen)
    assert max(len(slots) for slots in seen) > 1


def test_solutions_count_for_whoever_proposed_them_and_are_forgotten():
    for before, proposal, told, after in batches():
        kinds = np.repeat(proposal.aux[1], EACH)

        def sums(values, kinds=kinds):
            return np.bincount(kinds, np.asarray(values), minlength=KINDS)

        np.testing.assert_array_equal(after.accepted - before.accepted, sums(told.accepted))
        np.testing.assert_array_equal(after.filled - before.filled, sums(told.filled))
        number = sums(np.ones(BATCH))
        kept = (1 - 1 / 36) ** number  # by its own solutions
        np.testing.assert_allclose(after.tried, kept * before.tried + number, rtol=1e-6)
        # Of several solutions in one empty cell, only the best counts.
        counts = np.asarray(told.filled | (told.accepted & ~told.was_empty))
        gained = kept * before.gained + sums(counts * told.gains)
        np.testing.assert_allclose(after.gained, gained, rtol=1e-5, atol=1e-7)
        kept = (1 - 1 / 36) ** BATCH  # by the solutions of all
        recent = kept * np.array([before.recent_gain, before.recent_new])
        recent += [np.sum(counts * told.gains), np.sum(told.filled * told.gains)]
        np.testing.assert_allclose([after.recent_gain, after.recent_new], recent, rtol=1e-5)


def test_solutions_of_a_slot_are_those_of_its_emitter():
    for _, proposal, _, _ in batches():
        aux, kinds = proposal.aux
        assert proposal.solutions.shape == (BATCH, 4)
        for place, parts in enumerate(aux):
            for leaf in jax.tree.leaves(parts):
                rows = np.asarray(leaf).reshape(SLOTS, -1)
                assert not rows[kinds != place].any()
        is_aimed = np.isin(np.repeat(kinds, EACH), [1, 5])
        assert not np.asarray(proposal.targets)[~is_aimed].any()
        pulls = np.asarray(proposal.aims.is_pulled)
        np.testing.assert_array_equal(pulls, np.repeat(kinds[:1] == 1, EACH))


def test_the_first_solutions_of_an_instance_are_steps_from_the_start():
    number = 0
    for before, proposal, _, _ in batches():
        noise, kinds = proposal.aux[0][2], proposal.aux[1]
        by_slot = np.asarray(proposal.solutions).reshape(SLOTS, EACH, 4)
        slots = np.flatnonzero(kinds == 2)
        is_first = np.zeros(SLOTS, bool)
        is_first[slots] = before.emitters[2].gaussians.generation[: len(slots)] == 0
        np.testing.assert_allclose(by_slot[is_first], 0.5 * noise[is_first], rtol=1e-6)
        number += is_first.sum()
    assert number > 0


def test_gradients_that_are_not_finite_leave_a_finite_state():
    state, failed = ALL.init(), 0
    for seed in range(4):
        proposal, told = ask_all(state, jax.random.key(seed)), told_all(seed)
        # As of a step: gradients that are not finite are zero.
        climb = Climb(jnp.zeros((BATCH, 4)), jnp.zeros(BATCH, bool))
        told_so = dataclasses.replace(told, climb=climb)
        state = adapt(UNEVEN, state, proposal, told_so, PARENTS[:SLOTS])
        if proposal.aux[1][0] < 2:
            failed += int(told.valid[:EACH].sum())
    assert failed > 0
    assert sum(int(state.emitters[place].failed) for place in (0, 1)) == failed
    finite = jax.tree.map(lambda leaf: bool(jnp.isfinite(leaf).all()), state.emitters[:2])
    assert all(jax.tree.leaves(finite))


def test_all_slots_at_once_as_on_a_gpu_are_those_one_after_the_other(monkeypatch):
    for module in ("adaptive_mixture", "cma_emitters"):
        monkeypatch.setattr(f"gloam.emitters.{module}.runs_on_cpu", lambda: False)

    @jax.jit
    def all_at_once(state, key, proposal, told):
        asked = UNEVEN.ask(state, PARENTS, key=key, targets=targets_near(PARENTS))
        return asked, UNEVEN.adapt(state, proposal, told, PARENTS[:SLOTS])

    for seed, (state, *both, after) in enumerate(batches()):
        found = all_at_once(state, jax.random.key(seed), *both)
        for one, other in zip(*map(jax.tree.leaves, (found, (both[0], after))), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_adaptive_mixture_is_divided_into_slots():
    assert EQUAL.num_parts == SLOTS
    assert not EQUAL.divides_into(2)
    part = EQUAL.part(SLOTS)
    assert (part.num_solutions, part.num_slots, part.window) == (EACH, 1, 36.0)
    assert EQUAL.part(1) is EQUAL
    state = EQUAL.init()
    own = EQUAL.part_state(state, jnp.asarray(2), SLOTS)
    assert_same_bits(EQUAL.with_part_state(state, jnp.asarray(2), SLOTS, own), state)
    # Small emitters have the first slots, so the parts would not be alike.
    assert ALL.num_parts == 1


def test_slots_of_parts_follow_the_shares_of_the_whole():
    state = brought(EQUAL, np.full(3, 100), [3, 2, 1])
    keys, part = jax.random.split(jax.random.key(5), (SLOTS, 1000)), EQUAL.part(SLOTS)

    def kinds(index, keys):
        own = EQUAL.part_state(state, index, SLOTS)
        return jax.vmap(lambda key: part._kinds(own, key=key))(keys)

    found = np.asarray(jax.jit(jax.vmap(kinds))(jnp.arange(SLOTS), keys))
    counts = np.bincount(found.ravel(), minlength=3) / found.size
    # Four standard errors.
    np.testing.assert_allclose(counts, EQUAL.shares(state), atol=4 * 0.5 / np.sqrt(found.size))
    # The first part is the first slot.
    assert (found[0] == 0).all()


def test_emitters_that_do_not_fit_into_slots_are_refused():
    with refused("emitters: expected emitters whose number of solutions is a multiple of 6", 5):
        AdaptiveMixture([CMA, LINE])
    with refused("emitters: expected emitters that divide into parts of 6", "CmaEmitters"):
        AdaptiveMixture([CMA, CMA_3])
    with refused("emitters: expected emitters that are not mixtures", "Mixture"):
        AdaptiveMixture([Mixture([CMA_3, SWAPS]), CMA_3])
    with refused("window: expected a finite number > 1"):
        AdaptiveMixture([CMA_3, SWAPS], window=1)
