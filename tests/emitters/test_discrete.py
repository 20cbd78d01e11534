"""Integers and categories never freeze: laws of the margin, and searches beside `cmaes`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import gloam
from gloam import emitters
from gloam.emitters.discrete import Categories, changed, least, spliced, with_margin

pytestmark = pytest.mark.slow  # searches of its own are compiled

SPACE = gloam.Space(
    real=gloam.Real(-1, 1),
    z=gloam.Integer(0, 6, shape=(2,)),
    kind=gloam.Categorical(["a", "b", "c", "d"]),
    flag=gloam.Categorical([False, True]),
)
DISCRETE = SPACE.discrete
INTEGERS = gloam.Space(z=gloam.Integer(-3, 6), two=gloam.Integer(0, 1)).discrete
bounded = jax.jit(partial(with_margin, INTEGERS))


@given(st.floats(0, 1), st.floats(-9, 0), st.sampled_from([0, 1]))
@settings(max_examples=30, deadline=None)
def test_the_margin_keeps_the_probability_of_other_values(at, log_deviation, column):
    mean = jnp.full(2, at, jnp.float32)
    deviation = jnp.full(2, 10**log_deviation, jnp.float32)
    margin = least(INTEGERS)
    new_mean, new_deviation = bounded(mean, deviation, margin)
    number = int(INTEGERS.num_values[column])
    own = min(int(at * number), number - 1)
    edges = np.array([own, own + 1]) / number
    below, above = norm.cdf(edges, new_mean[column], new_deviation[column]) * [1, -1] + [0, 1]
    below, above = below * (own > 0), above * (own < number - 1)
    half = margin / 2 if 0 < own < number - 1 else margin
    tolerance = 0.99  # float32
    for share, is_there in ((below, own > 0), (above, own < number - 1)):
        assert not is_there or share >= tolerance * half
    # The value of the mean stays the most likely of its neighbours' side, or nothing changed.
    assert abs(float(new_mean[column]) - at) <= 1 / number


@pytest.mark.release
def test_wide_gaussians_and_real_numbers_stay_as_they_are():
    mean, deviation = jnp.full(5, 0.4), jnp.full(5, 0.2)
    new_mean, new_deviation = with_margin(DISCRETE, mean, deviation, least(DISCRETE))
    np.testing.assert_allclose(new_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(new_deviation, deviation, rtol=1e-6)
    tiny = with_margin(DISCRETE, mean, jnp.full(5, 1e-9), least(DISCRETE))[1]
    # Real numbers and categories are not in the margin of integers.
    assert np.asarray(tiny[jnp.array([0, 3, 4])] == 1e-9).all()
    assert np.asarray(tiny[1:3] > 1e-3).all()


@pytest.mark.release
def test_probabilities_of_categories_keep_their_margin_and_sum_to_one():
    categories = Categories(DISCRETE)
    solutions = jnp.asarray(
        SPACE.vectors(
            {
                "real": np.zeros(6),
                "z": np.zeros((6, 2), int),
                "kind": np.array(["b"] * 6),
                "flag": np.array([True] * 6),
            }
        )
    )
    found = categories.fresh(solutions[:2])
    weights = jnp.full((2, 3), 1 / 3)
    for _ in range(100):
        found = categories.learned(found, solutions.reshape(2, 3, -1), weights, 0.7)
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=1e-5)
    margin = least(DISCRETE)
    np.testing.assert_allclose(
        found[:, 0], [[margin / 3, 1 - margin, margin / 3, margin / 3]] * 2, rtol=1e-3
    )
    np.testing.assert_allclose(found[:, 1, :2], [[margin, 1 - margin]] * 2, rtol=1e-3)
    drawn = np.asarray(categories.draw(found, 5000, key=jax.random.key(0)))
    # Four standard errors of a share of 10,000 draws.
    share = (drawn[..., 0] != 1).mean()
    assert abs(share - margin) < 4 * np.sqrt(margin / 10_000)
    assert drawn[..., 0].max() == 3
    assert drawn[..., 1].max() == 1


def test_changes_reach_every_value_and_leave_real_numbers():
    start = jnp.asarray(np.tile(SPACE.start, (20_000, 1)))
    new = np.asarray(jax.jit(partial(changed, DISCRETE))(start, key=jax.random.key(1)))
    margin = least(DISCRETE)
    share = (new != np.asarray(start)).mean(axis=0)
    assert share[0] == 0
    assert (np.abs(share[1:] - margin) < 4 * np.sqrt(margin / 20_000)).all()
    assert [len(np.unique(column)) for column in new.T] == [1, 7, 7, 4, 2]


MOVES = emitters.Recombination
WORDS = gloam.Space(
    dose=gloam.Real(0, 1),
    word=gloam.Categorical(["a", "_", "b", "c"], shape=(6,), padding="_"),
    kind=gloam.Categorical(["x", "y"]),
    tail=gloam.Categorical(["_", "p", "q"], shape=(2,), padding="_"),
)


def word_rows(word, tail, kind):
    """Many rows of one solution; underscores are padding, also in between."""
    row = {"dose": [0.5], "word": [list(word)], "kind": [kind], "tail": [list(tail)]}
    return jnp.asarray(np.tile(WORDS.vectors({k: np.array(v) for k, v in row.items()}), (6000, 1)))


def children(first, second, choices, longest):
    """All sequences that a crossover or an edit can give, by Python's own texts."""
    first, second = first.replace("_", ""), second.replace("_", "")
    cuts = range(len(first) + 1)
    near = {(i, min(max(i + shift, 0), len(second))) for i in cuts for shift in range(-3, 4)}
    crossed = {first[:i] + second[j:] for i, j in near}
    new = {first[:i] + c + first[i + 1 :] for i in cuts for c in choices}
    inserted = {first[:i] + c + first[i:] for i in cuts for c in second or choices}
    removed = {first[:i] + first[i + 1 :] for i in cuts}
    return {text[:longest].ljust(longest, "_") for text in crossed | new | inserted | removed}


@pytest.mark.parametrize(("first", "second"), [("ab_c__", "cab___"), ("abcabc", "______")])
def test_sequences_become_every_crossover_and_edit_and_nothing_else(first, second):
    rows, others = word_rows(first, "pq", "x"), word_rows(second, "q_", "y")
    splice = jax.jit(partial(spliced, WORDS.discrete))
    values = WORDS.values(np.asarray(splice(rows, rows, others, key=jax.random.key(0))))
    words = {"".join(row) for row in values["word"]}
    assert words == children(first, second, "abc", 6)
    assert {"".join(row) for row in values["tail"]} == children("pq", "q_", "pq", 2)
    assert (values["dose"] == 0.5).all()
    assert set(values["kind"]) == {"x"}


def test_changes_leave_sequences_to_splices():
    rows = word_rows("ab____", "p_", "x")
    new = np.asarray(changed(WORDS.discrete, rows, key=jax.random.key(0)))
    assert (new != np.asarray(rows)).any(axis=0).nonzero()[0].tolist() == [7]


@pytest.mark.parametrize("kind", [emitters.CmaEmitters, MOVES])
def test_proposed_sequences_have_their_padding_at_the_end(kind):
    emitter = kind(WORDS, batch_size=60, **{"num_emitters": 1} if kind is not MOVES else {})
    rows = jnp.concatenate([word_rows("a_b__c", "_p", "x")] * 2)
    state = emitter.init(rows[0])
    number = sum(draw.number for draw in emitter.elites_to_ask)
    proposal = emitter.ask(state, rows[:number], key=jax.random.key(0))
    values = WORDS.values(np.asarray(proposal.solutions))
    for name in ("word", "tail"):
        texts = {"".join(row) for row in values[name]}
        assert len(texts) > 3
        assert all("_" not in text.rstrip("_") for text in texts)


ONE_CELL = gloam.GridArchive((1,), -1, 1)


def evaluations(space, cost, batch_size, most, strategy=None, seeds=14):
    """Number of evaluations until the cost is below 1e-6, of each seed."""
    emitter = emitters.CmaEmitters(
        space,
        num_emitters=1,
        batch_size=batch_size,
        restart=emitters.BasicRestart(),
        strategy=strategy,
    )
    algorithm = gloam.Algorithm(emitter, ONE_CELL, gloam.discounts.NoDiscount())

    def domain(values):
        found = -cost(values)
        return found, jnp.zeros((found.shape[0], 1))

    result = gloam.run(
        domain, algorithm, most // batch_size, seeds=seeds, log_every=1, progress=False
    )
    found = result.metrics
    found = found[found["best_objective"] > -1e-6].groupby("seed")["evaluations"].min()
    return [int(found.get(seed, 10 * most)) for seed in range(seeds)]


def sphere(values):
    return sum(jnp.square(values[name].astype(jnp.float32)).sum(axis=1) for name in ("x", "z"))


def tablet(values):
    return sphere(values | {"z": 100 * values["z"]})


def leading(values):
    return sphere(values) + 5 - jnp.cumprod(values["c"] == 0, axis=1).sum(axis=1)


REALS = {"x": gloam.Real(-10, 10, shape=(5,), start=4), "z": gloam.Integer(-10, 10, shape=(5,))}
CATEGORIES = {"c": gloam.Categorical(["a", "b", "c"], shape=(5,), start="c")}


@pytest.mark.release
def test_a_small_sigma_does_not_freeze_integers_and_categories():
    space = gloam.Space(
        x=gloam.Real(-10, 10, start=0),
        z=gloam.Integer(-10, 10, start=4, shape=(2,)),
        **CATEGORIES,
    )
    emitter = emitters.CmaEmitters(space, sigma0=1e-4, num_emitters=1, batch_size=12)
    algorithm = gloam.Algorithm(emitter, ONE_CELL, gloam.discounts.NoDiscount())

    def domain(values):
        cost = jnp.abs(values["z"]).sum(axis=1) + jnp.sum(values["c"] != 0, axis=1)
        return -cost.astype(jnp.float32), jnp.zeros((12, 1))

    result = gloam.run(domain, algorithm, 400, seeds=5, progress=False)
    assert [elites.best_objective for elites in result.elites_by_seed.values()] == [0] * 5


@pytest.mark.release
def test_integers_of_lm_ma_es_do_not_freeze():
    """LM-MA-ES keeps no deviations, and has the margin all the same; it needs many variables."""
    space = gloam.Space(z=gloam.Integer(-10, 10, start=4, shape=(30,)))
    emitter = emitters.CmaEmitters(
        space, sigma0=1e-4, num_emitters=1, batch_size=12, strategy=emitters.LMMAES()
    )
    algorithm = gloam.Algorithm(emitter, ONE_CELL, gloam.discounts.NoDiscount())

    def domain(values):
        cost = jnp.square(values["z"]).sum(axis=1).astype(jnp.float32)
        return -cost, jnp.zeros((12, 1))

    result = gloam.run(domain, algorithm, 1000, seeds=5, progress=False)
    assert [elites.best_objective for elites in result.elites_by_seed.values()] == [0] * 5


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "strategy", "most"),
    [("leading", emitters.CMAES(), 1.6), ("tablet", emitters.SepCMAES(), 1.2)],
)
def test_evaluations_beside_cmaes(name, strategy, most):
    """Medians of evaluations are not much larger than those of CMAwM or CatCMAwM.

    Ratios of medians, over seeds 0 to 6 and seeds 7 to 13, were 0.99 to 1.36 for CMAES and 0.76 to
    0.96 for SepCMAES. The bounds are the 99.9% quantile of the ratio in 20,000 resamples of 7 of
    the 14 seeds, of the function where it is largest (`leading`: 1.58 and 1.20), to one decimal.
    """
    cmaes = pytest.importorskip("cmaes")
    cost = {"tablet": tablet, "leading": leading}[name]
    space = gloam.Space(**REALS, **(CATEGORIES if name == "leading" else {}))
    ours = np.median(np.reshape(evaluations(space, cost, 12, 12_000, strategy), (2, 7)), axis=1)
    theirs = np.median([[_by_cmaes(cmaes, name, 7 * k + i) for i in range(7)] for k in (0, 1)], 1)
    assert (ours <= most * theirs).all(), (ours, theirs)


def _by_cmaes(cmaes, name, seed, most=12_000, batch_size=12):
    """Number of evaluations of the oracle."""
    rng = np.random.default_rng(seed)
    if name == "tablet":
        bounds = np.tile([-10.0, 10.0], (10, 1))
        steps = np.repeat([0.0, 1.0], 5)
        mean = rng.uniform(3, 5, 10) * rng.choice([-1, 1], 10)
        search = cmaes.CMAwM(
            mean=mean, sigma=4.0, bounds=bounds, steps=steps, population_size=12, seed=seed
        )
    else:
        search = cmaes.CatCMAwM(
            x_space=np.tile([-10.0, 10.0], (5, 1)),
            z_space=np.tile(np.arange(-10, 11), (5, 1)),
            c_space=np.full(5, 3),
            population_size=12,
            seed=seed,
        )
    for done in range(0, most, batch_size):
        told = []
        for row in range(batch_size):
            asked = search.ask()
            if name == "tablet":
                shown, kept = asked
                weight = np.where(np.arange(10) < 5, 1, 100)
                value = float(np.square(weight * shown).sum())
            else:
                kept, chosen = asked, asked.c.argmax(axis=1)
                value = float(np.square(asked.x).sum() + np.square(asked.z).sum())
                right = chosen == 0
                value += 5 - np.cumprod(right).sum()
            if value < 1e-6:
                return done + row + 1
            told.append((kept, value))
        search.tell(told)
    return 10 * most
