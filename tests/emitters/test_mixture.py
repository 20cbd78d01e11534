"""Emitters made of emitters: every part does what it does alone, and its own rows count for it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.emitters import CmaEmitters, Mixture, Variation
from gloam.records import Feedback, Proposal
from tests.helpers import assert_same_bits, refused

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
    part = mixture.part_state(state, jnp.asarray(1))
    assert_same_bits(part.emitters[0], CMA.part_state(state.emitters[0], jnp.asarray(1)))
    assert_same_bits(mixture.with_part_state(state, jnp.asarray(1), part), state)
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
