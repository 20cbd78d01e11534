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
    CmaEmitters,
    GradientAscent,
    Mixture,
    Recombination,
    Swaps,
    Variation,
)
from gloam.records import Climb, Distances, Feedback, Proposal
from tests.helpers import assert_same_bits, refused, targets_near

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "discount",
    ["none", *(pytest.param(n, marks=pytest.mark.slow) for n in ("model", "thresholds"))],
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
EQUAL = AdaptiveMixture([CMA_3, MOVES, SWAPS], window=36.0)
# Two small emitters, which can have the first slot.
ALL = AdaptiveMixture([*CLIMBS, CMA_3, MOVES, SWAPS, AIMED], window=36.0)


FIRST = {EQUAL.num_parts: EQUAL.init(), ALL.num_parts: ALL.init()}


def brought(mixture, tried, gained):
    """State of a mixture after its emitters brought this."""
    counts = [np.asarray(numbers, np.float32) for numbers in (tried, gained)]
    return eqx.tree_at(lambda state: [state.tried, state.gained], FIRST[mixture.num_parts], counts)


@eqx.filter_jit
def shares_after(mixture, state):
    return mixture.shares(state)


def shares(mixture, tried, gained) -> np.ndarray:
    return np.asarray(shares_after(mixture, brought(mixture, tried, gained)))


def test_shares_worked_by_hand():
    # 0.02, 0.01 and nothing for each solution: squares of 4 to 1 to 0.
    expected = 0.1 / 3 + 0.9 * np.array([0.8, 0.2, 0.0])
    np.testing.assert_allclose(shares(EQUAL, [1000, 50, 9], [20, 0.5, 0]), expected, rtol=1e-6)
    even = np.full(3, 1 / 3)
    np.testing.assert_allclose(shares(EQUAL, [0, 0, 0], [0, 0, 0]), even, rtol=1e-6)
    np.testing.assert_allclose(shares(EQUAL, [9, 9, 9], [0, 0, 0]), even, rtol=1e-6)
    # One that was not tried yet may be as good as the best.
    expected = 0.1 / 3 + 0.9 * np.array([0.5, 0.0, 0.5])
    np.testing.assert_allclose(shares(EQUAL, [9, 9, 0], [5, 0, 0]), expected, rtol=1e-6)


def test_shares_of_small_emitters_worked_by_hand():
    # Both small ones would have more than the one slot that they share: each keeps its even share,
    # and the rest of the slot is divided as 4 to 1. The others divide the rest as usual.
    even, worth = 0.1 / 6, np.array([4, 1, 1, 0, 0, 0]) / 6
    first = even + (1 / 3 - 2 * even) * np.array([0.8, 0.2])
    rest = even + 0.9 * worth[2:]
    expected = [*first, *(2 / 3 * rest / rest.sum())]
    found = shares(ALL, np.full(6, 100), [2, 1, 1, 0, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # What fits stays as it is.
    found = shares(ALL, np.full(6, 100), [0, 0, 1, 2, 0, 0])
    expected = even + 0.9 * np.array([0, 0, 0.2, 0.8, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


tries = st.lists(st.floats(1, 1e6), min_size=6, max_size=6)
amounts = st.lists(st.floats(0, 1e9), min_size=6, max_size=6)


@settings(max_examples=50)
@given(tries, amounts, st.integers(0, 5), st.floats(0, 1e9), st.sampled_from([1e-12, 1.0, 1e18]))
def test_shares_are_within_limits_and_follow_what_emitters_bring(tried, gained, which, more, unit):
    gained = np.array(gained)
    found = shares(ALL, tried, unit * gained)
    assert found.sum() == pytest.approx(1, abs=1e-5)
    # A small emitter may pass its slot on, and nobody has less than the even share.
    assert (found >= 0.1 / 6 - 1e-6).all()
    assert found[:2].sum() <= 1 / SLOTS + 1e-6
    gained[which] += more
    assert shares(ALL, tried, unit * gained)[which] >= found[which] - 1e-5


@pytest.mark.parametrize("gained", [[1, 2, 3, 2, 0, 1], [5, 4, 1, 0, 0, 0], [0, 0, 0, 0, 0, 9]])
def test_slots_follow_the_shares(gained):
    state = brought(ALL, np.full(6, 100), gained)
    number = 4000
    keys = jax.random.split(jax.random.key(0), number)
    kinds = np.asarray(jax.jit(jax.vmap(lambda key: ALL._kinds(state, key=key)))(keys))
    counts = np.bincount(kinds.ravel(), minlength=6) / number / SLOTS
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
    return ALL.ask(state, PARENTS, key=key, targets=targets_near(PARENTS))


def told_all(seed: int) -> Feedback:
    """Feedback of a whole batch."""
    random = np.random.default_rng(seed)

    def chance(share):
        return jnp.asarray(random.random(BATCH) < share)

    values = jnp.asarray(random.normal(size=BATCH), jnp.float32)
    accepted, was_empty = chance(0.6), chance(0.4)
    gradients = jnp.asarray(random.normal(size=(BATCH, 4)), jnp.float32)
    return Feedback(
        improvements=values,
        accepted=accepted,
        filled=accepted & was_empty & chance(0.7),
        valid=accepted | chance(0.8),
        iteration=jnp.asarray(1 + seed),
        climb=Climb(gradients, jnp.ones(BATCH, bool)),
        was_empty=was_empty,
        gains=jnp.where(accepted, jnp.asarray(random.random(BATCH), jnp.float32), 0.0),
        distances=Distances(jnp.square(values), chance(0.2)),
    )


@functools.cache
def batches() -> list:
    """States, proposals, feedback and states after it, of a mixture of everything."""
    state, found = ALL.init(), []
    for seed in range(12):
        proposal, told = ask_all(state, jax.random.key(seed)), told_all(seed)
        after = adapt(ALL, state, proposal, told, PARENTS[:SLOTS])
        found.append((state, proposal, told, after))
        state = after
    assert {kind for batch in found for kind in batch[1].aux[1].tolist()} == set(range(6))
    return found


def rows_of(emitter_state, index: int, number: int):
    """What one of ``number`` instances or points has of a state."""
    leaves = [leaf for leaf in jax.tree.leaves(emitter_state) if leaf.ndim and len(leaf) == number]
    assert leaves
    return [leaf[index] for leaf in leaves]


def test_whoever_does_not_have_the_slot_rests():
    for before, proposal, _, after in batches():
        kinds = proposal.aux[1]
        for place in (2, 5):  # instances of CMA-ES
            for slot in range(SLOTS):
                # Aimed instances count how long they rest.
                states = [
                    getattr(state, "instances", state)
                    for state in (before.emitters[place], after.emitters[place])
                ]
                old, new = (rows_of(state, slot, SLOTS) for state in states)
                if kinds[slot] != place:
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


def test_whoever_has_a_slot_adapts_as_alone():
    for before, proposal, told, after in batches()[:6]:
        aux, kinds = proposal.aux
        alone = dataclasses.replace(told, distances=None, gains=None, climb=None)
        own = Proposal(proposal.solutions, aux[2])
        expected = adapt(CMA_3, before.emitters[2], own, alone, PARENTS[:SLOTS]).gaussians
        for slot in np.flatnonzero(kinds == 2):
            found, wanted = (
                rows_of(g, slot, SLOTS) for g in (after.emitters[2].gaussians, expected)
            )
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_solutions_count_for_whoever_proposed_them_and_are_forgotten():
    kept = (1 - 1 / 36) ** BATCH
    for before, proposal, told, after in batches():
        kinds = np.repeat(proposal.aux[1], EACH)

        def sums(values, kinds=kinds):
            return np.bincount(kinds, np.asarray(values), minlength=6)

        np.testing.assert_array_equal(after.accepted - before.accepted, sums(told.accepted))
        np.testing.assert_array_equal(after.filled - before.filled, sums(told.filled))
        tried = kept * before.tried + sums(np.ones(BATCH))
        np.testing.assert_allclose(after.tried, tried, rtol=1e-6)
        # Of several solutions in one empty cell, only the best counts.
        counts = np.asarray(told.filled | (told.accepted & ~told.was_empty))
        gained = kept * before.gained + sums(counts * told.gains)
        np.testing.assert_allclose(after.gained, gained, rtol=1e-5, atol=1e-7)


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
        is_first = (kinds == 2) & (before.emitters[2].gaussians.generation == 0)
        np.testing.assert_allclose(by_slot[is_first], 0.5 * noise[is_first], rtol=1e-6)
        number += is_first.sum()
    assert number > 0


def test_gradients_that_are_not_finite_leave_a_finite_state():
    state, failed = ALL.init(), 0
    for seed in range(4):
        proposal, told = ask_all(state, jax.random.key(seed)), told_all(seed)
        # As of a step: gradients that are not finite are zero.
        climb = Climb(jnp.zeros((BATCH, 4)), jnp.zeros(BATCH, bool))
        state = adapt(ALL, state, proposal, dataclasses.replace(told, climb=climb), PARENTS[:SLOTS])
        if proposal.aux[1][0] < 2:
            failed += int(told.valid[:EACH].sum())
    assert failed > 0
    assert sum(int(state.emitters[place].failed) for place in (0, 1)) == failed
    finite = jax.tree.map(lambda leaf: bool(jnp.isfinite(leaf).all()), state.emitters[:2])
    assert all(jax.tree.leaves(finite))


def test_all_slots_at_once_as_on_a_gpu_are_those_one_after_the_other(monkeypatch):
    for module in ("mixture", "cma_emitters"):
        monkeypatch.setattr(f"gloam.emitters.{module}.runs_on_cpu", lambda: False)

    @jax.jit
    def all_at_once(state, key, proposal, told):
        asked = ALL.ask(state, PARENTS, key=key, targets=targets_near(PARENTS))
        return asked, ALL.adapt(state, proposal, told, PARENTS[:SLOTS])

    for seed, (state, *both, after) in enumerate(batches()[:6]):
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
