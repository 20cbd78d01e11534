"""The discount model: equation 1, scaled inputs, the first fit, and which networks may serve."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gloam._tools.programs import partition
from gloam.archives import GridArchive
from gloam.discounts import CNN, MLP, Frozen, discount_model
from gloam.discounts.training import Trained, fit
from gloam.records import Batch
from tests.helpers import paper_model

targets = jax.jit(discount_model.targets)
LOWER = jnp.array([-2.0, 10.0])
UPPER = jnp.array([6.0, 30.0])


class Pick(eqx.Module):
    """Returns one of its inputs, so that a test sees what a network sees."""

    index: int = eqx.field(static=True)

    def __call__(self, x):
        return x[self.index]


class Whole(eqx.Module):
    """Returns its input as it came."""

    def __call__(self, x):
        return x


class Mute(eqx.Module):
    """A module that cannot be called."""

    weight: jax.Array


@partial(jax.jit, static_argnums=(0, 1))
def _method(name, static, arrays, arguments, keywords):
    return getattr(static.with_arrays(arrays), name)(*arguments, **keywords)


def call(model, name, *arguments, **keywords):
    """Call a method in a program that models with other numbers share, as in a search."""
    arrays, static = partition(model)
    return _method(name, static, arrays, arguments, keywords)


def initial(model, centers, real, key):
    return call(model, "init", centers, real, key=key)


def discount(model, state, measures):
    return call(model, "discount", state, measures)


def as_built(model):
    """State with the weights that the model's network was built with."""
    params = eqx.filter(model.network, eqx.is_inexact_array)
    return Trained(params, model._optimizer.init(params))


def random_points(number, seed):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.uniform(LOWER, UPPER, (number, 2)).astype(np.float32))


def batch_of(objectives, measures, valid):
    rows = len(objectives)
    solutions, cells = np.zeros((rows, 3), np.float32), np.zeros(rows, np.int32)
    arrays = (solutions, objectives, measures, cells, valid)
    return Batch(*map(jnp.asarray, arrays), {})


# Equation 1


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, [0.5, 0.5, 0.5, -1.0, 0.0]),
        (0.1, [0.5, 0.5, 0.54, -0.9, 0.3]),
        (1.0, [0.5, 0.5, 0.9, 0.0, 3.0]),
    ],
)
def test_targets_are_those_of_equation_1_worked_by_hand(alpha, expected):
    objectives = jnp.array([0.2, 0.5, 0.9, 0.0, 3.0])
    discounts = jnp.array([0.5, 0.5, 0.5, -1.0, 0.0])
    # Two products and a sum of numbers near 1: a few float32 roundings.
    np.testing.assert_allclose(targets(objectives, discounts, alpha), expected, rtol=0, atol=3e-7)


numbers = st.floats(-1000, 1000, width=32)


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(st.tuples(numbers, numbers), min_size=8, max_size=8),
    alpha=st.floats(0, 1),
)
def test_a_target_lies_between_the_discount_and_the_better_of_objective_and_discount(pairs, alpha):
    objectives, discounts = np.array(pairs, np.float32).T
    got = np.asarray(targets(jnp.asarray(objectives), jnp.asarray(discounts), alpha))
    # (1 - alpha) d + alpha f is rounded three times, each by at most half a unit of the larger.
    slack = 2 * np.spacing(np.maximum(np.abs(objectives), np.abs(discounts)))
    assert (got >= discounts - slack).all()
    assert (got <= np.maximum(objectives, discounts) + slack).all()
    worse = objectives <= discounts
    np.testing.assert_array_equal(got[worse], discounts[worse])


@pytest.mark.parametrize(
    ("first_visit", "expected"),
    # Worse than the discount; new ground; visited before; below the floor.
    [(None, [0.5, 0.09, 0.54, -1.9]), (0.3, [0.5, 0.27, 0.54, -1.9]), (1, [0.5, 0.9, 0.9, -1.9])],
)
def test_a_first_visit_raises_the_target_to_its_share_worked_by_hand(first_visit, expected):
    objectives, discounts = jnp.array([0.2, 0.9, 0.9, -1.0]), jnp.array([0.5, 0.0, 0.5, -2.0])
    found = targets(objectives, discounts, 0.1, first_visit)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-7)


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(st.tuples(numbers, numbers), min_size=8, max_size=8),
    alpha=st.floats(0, 1),
    first_visit=st.floats(0, 1),
)
def test_a_first_visit_raises_targets_and_none_above_its_objective(pairs, alpha, first_visit):
    objectives, discounts = map(jnp.asarray, np.array(pairs, np.float32).T)
    plain = np.asarray(targets(objectives, discounts, alpha))
    raised = np.asarray(targets(objectives, discounts, alpha, first_visit))
    assert (raised >= plain).all()
    higher = raised > plain
    assert (raised <= objectives)[higher].all()


@pytest.mark.parametrize(
    "f_min", [pytest.param(-3.0, marks=pytest.mark.slow), None], ids=["given", "estimated"]
)
def test_the_share_of_a_first_visit_counts_from_the_floor(f_min):
    f_max = None if f_min is None else 5.0
    model = paper_model(
        LOWER, UPPER, floor=f_min, ceiling=f_max, alpha=0.0, first_visit=0.25, network=MLP(2, (8,))
    )
    key = jax.random.key(3)
    state = initial(model, random_points(10, seed=2), jnp.ones(10, bool), key)
    batch = batch_of(np.float32([1.0, 3.0]), random_points(2, seed=1), np.ones(2, bool))
    state = model.rescaled(state, batch.objectives)
    floor = float(model.empty_value(state, 0.0)) if f_min is None else f_min
    scored = call(model, "score", state, batch)
    centers = random_points(1, seed=2), jnp.ones(1, bool)
    _, report = call(model, "train", state, batch, scored, *centers, key=key)
    expected = np.maximum(floor + 0.25 * (np.float32([1.0, 3.0]) - floor), scored.discounts)
    np.testing.assert_allclose(report.targets[:2], expected, rtol=1e-4)


# What the network sees


@pytest.mark.parametrize("index", [0, 1])
def test_the_bounds_of_each_measure_map_to_minus_one_and_one(index):
    model = paper_model(LOWER, UPPER, network=Pick(index))
    points = jnp.stack([LOWER, UPPER, (LOWER + UPPER) / 2, 2 * UPPER - LOWER])
    seen = discount(model, as_built(model), points)
    # A point one extent beyond the bounds is not clipped. A compiler may round the quotient.
    np.testing.assert_allclose(seen, [-1.0, 1.0, 0.0, 3.0], rtol=0, atol=1e-6)


def test_a_network_may_return_a_vector_of_one_number():
    model = paper_model(LOWER[:1], UPPER[:1], network=Whole())
    seen = discount(model, as_built(model), jnp.array([[-2.0], [0.0], [6.0]]))
    np.testing.assert_allclose(seen, [-1.0, -0.5, 1.0], rtol=0, atol=1e-6)


def test_improvement_is_the_objective_less_the_discount():
    model = paper_model(LOWER, UPPER, network=Pick(1))
    measures = jnp.array([[0.0, 10.0], [0.0, 20.0], [0.0, 30.0]])
    batch = batch_of(jnp.array([0.5, 0.25, -1.0]), measures, np.ones(3, bool))
    scored = call(model, "score", as_built(model), batch)
    np.testing.assert_allclose(scored.discounts, [-1.0, 0.0, 1.0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(scored.improvements, [1.5, 0.25, -2.0], rtol=0, atol=1e-6)


def test_training_fits_the_scaled_batch_and_f_min_at_empty_centres():
    network = MLP(2, (8,))
    model = paper_model(LOWER, UPPER, floor=-3, ceiling=5, alpha=0.5, network=network, cutoff=0.2)
    state = as_built(model)
    key = jax.random.key(3)
    measures, centers = random_points(40, seed=1), random_points(10, seed=2)
    objectives = np.linspace(-3.0, 1.0, 40, dtype=np.float32)
    valid, empty = np.arange(40) % 7 != 3, jnp.asarray(np.arange(10) < 6)
    batch = batch_of(objectives, measures, valid)
    scored = call(model, "score", state, batch)

    trained, report = call(model, "train", state, batch, scored, centers, empty, key=key)

    points = np.concatenate([measures, centers])
    before = np.asarray(scored.discounts)
    goals = np.where(objectives > before, (objectives + before) / 2, before)
    np.testing.assert_array_equal(report.points, points)
    # Half of a sum against a sum of halves: one rounding of numbers below 8.
    np.testing.assert_allclose(np.asarray(report.targets)[:40], goals, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(report.targets)[40:], np.full(10, -3.0))
    np.testing.assert_array_equal(report.is_trained, np.concatenate([valid, empty]))

    scaled = (points - np.float32([2.0, 20.0])) / np.float32([4.0, 10.0])
    expected, loss, epochs = jax.jit(
        lambda state, scaled: fit(
            lambda params, x: jax.vmap(params)(x),
            optax.adam(1e-3),
            state,
            scaled,
            report.targets + 3.0,
            report.is_trained,
            batch_size=32,
            epochs=5,
            cutoff=1.6,
            key=key,
        )
    )(state, scaled)
    # The first loss is near 1.2: below the cutoff of 0.2 times the range of 8, above 0.2 itself.
    assert report.epochs == epochs == 1
    np.testing.assert_allclose(report.loss, loss, rtol=1e-5)
    for got, want in zip(jax.tree.leaves(trained), jax.tree.leaves(expected), strict=True):
        # The scaled inputs differ by a rounding, and two steps of Adam carry it along.
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


# The first fit


@pytest.mark.slow
@pytest.mark.parametrize(("f_min", "f_max"), [(0.0, 1.0), (-3.0, 5.0)])
def test_the_first_fit_brings_the_discount_near_f_min_at_random_cells(f_min, f_max):
    archive = GridArchive((40, 40), (-2.0, 10.0), (6.0, 30.0), f_min=f_min)
    model = paper_model(archive.lower, archive.upper, floor=f_min, ceiling=f_max)
    rng = np.random.default_rng(7)
    cells = jnp.asarray(rng.permutation(archive.num_cells)[: model.num_initial_centers])
    centers = archive.centers_of(cells)
    state = initial(model, centers, jnp.asarray(np.ones(1000, bool)), jax.random.key(7))
    others = jnp.asarray(rng.integers(0, archive.num_cells, 300))
    away = np.asarray(discount(model, state, archive.centers_of(others))) - f_min
    # Training stops at a mean squared error of 0.05 of the range. The fit is better than that: off
    # by 0.01 to 0.02 of the range for f_min 0 and by 0.03 for -3, where it begins 0.4 of it off.
    assert np.sqrt(np.mean(np.square(away))) < 0.05 * (f_max - f_min)


@pytest.mark.parametrize(
    "network",
    [
        lambda: MLP(2),
        pytest.param(lambda: CNN((1, 2)), marks=pytest.mark.slow),
        pytest.param(lambda: Frozen(jnp.tanh, measure_shape=2), marks=pytest.mark.slow),
    ],
    ids=["MLP", "CNN", "Frozen"],
)
@pytest.mark.parametrize(
    ("f_min", "f_max"), [(-1e6, 1.0), (-1000.0, 1.0), (-1.0, 0.0), (0.0, 1.0), (10.0, 11.0)]
)
def test_the_model_starts_at_f_min_whatever_its_scale(network, f_min, f_max):
    archive = GridArchive((30, 30), (-2.0, 10.0), (6.0, 30.0), f_min=f_min)
    model = paper_model(archive.lower, archive.upper, floor=f_min, ceiling=f_max, network=network())
    centers = archive.centers_of(jnp.arange(archive.num_cells))
    state = initial(model, centers, jnp.asarray(np.ones(len(centers), bool)), jax.random.key(7))
    away = np.asarray(discount(model, state, centers), np.float64) - f_min
    assert np.sqrt(np.mean(np.square(away))) < 0.05 * (f_max - f_min)


def test_a_shift_of_objective_and_f_min_changes_nothing_but_the_discount():
    """The network learns what lies above f_min."""
    centers, measures = random_points(64, seed=2), random_points(32, seed=3)
    objectives = np.linspace(0, 1, 32, dtype=np.float32)
    empty, valid = jnp.asarray(np.ones(64, bool)), np.ones(32, bool)
    found = []
    for f_min in (0.0, -4.0):
        model = paper_model(LOWER, UPPER, floor=f_min, ceiling=f_min + 1, network=MLP(2, (8,)))
        state = initial(model, centers, empty, jax.random.key(1))
        batch = batch_of(objectives + np.float32(f_min), measures, valid)
        scored = call(model, "score", state, batch)
        state, fit = call(
            model, "train", state, batch, scored, centers, empty, key=jax.random.key(2)
        )
        found.append(
            (
                scored.improvements,
                scored.discounts - f_min,
                fit.targets - f_min,
                discount(model, state, centers) - f_min,
            )
        )
    for one, other in zip(*found, strict=True):
        # Sums with 4 round at 5e-7; two steps of Adam carry it along.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_padding_among_the_first_centres_is_not_fitted():
    model = paper_model(LOWER, UPPER, floor=2.0, ceiling=3.0, network=MLP(2, (8,)), cutoff=0.0)
    centers, key = random_points(40, seed=1), jax.random.key(1)
    real = np.arange(40) % 5 < 3

    def fitted_to(points):
        return initial(model, jnp.asarray(points), jnp.asarray(real), key)

    state = fitted_to(centers)
    other_padding = fitted_to(np.where(real[:, None], centers, np.float32(1e3)))
    for got, want in zip(jax.tree.leaves(other_padding), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(got, want)
    other_centers = fitted_to(np.where(real[:, None], np.float32(1e3), centers))
    assert not np.allclose(other_centers.params.weights[0], state.params.weights[0])


# Networks


def equinox_model(out_size):
    network = eqx.nn.MLP(2, out_size, 16, 1, key=jax.random.key(5))
    return paper_model(
        LOWER, UPPER, floor=4.0, ceiling=5.0, network=network, learning_rate=0.05, cutoff=0.0
    )


@pytest.mark.parametrize("out_size", [pytest.param(1, marks=pytest.mark.slow), "scalar"])
def test_an_equinox_mlp_serves_and_learns(out_size):
    model, centers = equinox_model(out_size), random_points(64, seed=2)
    before = discount(model, as_built(model), centers)
    state = initial(model, centers, jnp.asarray(np.ones(64, bool)), jax.random.key(1))
    after = discount(model, state, centers)
    assert after.shape == (64,)
    error_before = np.mean(np.square(np.asarray(before) - 4.0))
    assert np.mean(np.square(np.asarray(after) - 4.0)) < 0.2 * error_before


def test_a_module_that_cannot_reinitialise_starts_with_its_own_weights():
    model, centers = equinox_model("scalar"), random_points(64, seed=2)
    own = jax.tree.leaves(eqx.filter(model.network, eqx.is_inexact_array))
    for seed in (0, 1):
        # Without a real centre the first fit trains nothing.
        state = initial(model, centers, jnp.asarray(np.zeros(64, bool)), jax.random.key(seed))
        for got, want in zip(jax.tree.leaves(state.params), own, strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_mlp_gets_other_weights_for_every_seed_and_the_same_for_one():
    model = paper_model(LOWER, UPPER, floor=2.0, ceiling=3.0, network=MLP(2, (8,)), cutoff=0.0)
    centers, none = random_points(40, seed=1), jnp.asarray(np.zeros(40, bool))
    first, second, again = (
        jax.tree.leaves(initial(model, centers, none, jax.random.key(seed)).params)
        for seed in (0, 1, 0)
    )
    for a, b, same, own in zip(first, second, again, jax.tree.leaves(model.network), strict=True):
        assert not np.isin(a, b).any()
        assert not np.isin(a, own).any()
        np.testing.assert_array_equal(a, same)


def test_weights_and_biases_start_uniform_within_one_over_root_fan_in():
    # PyTorch's default for Linear; the fan-in of a bias is that of its layer.
    network = MLP(50, (400, 200)).reinitialized(key=jax.random.key(4))
    assert [weight.shape for weight in network.weights] == [(50, 400), (400, 200), (200, 1)]
    assert [bias.shape for bias in network.biases] == [(400,), (200,), (1,)]
    for fan_in, weight, bias in zip((50, 400, 200), network.weights, network.biases, strict=True):
        limit = fan_in**-0.5
        for drawn in (np.asarray(weight).ravel(), np.asarray(bias)):
            assert np.abs(drawn).max() <= limit
            # Kolmogorov and Smirnov's distance to the uniform law; over 2/sqrt(n) once in 1,500.
            steps = np.arange(len(drawn) + 1) / len(drawn)
            uniform = (np.sort(drawn) / limit + 1) / 2
            distance = max((uniform - steps[:-1]).max(), (steps[1:] - uniform).max())
            assert distance < 2 / np.sqrt(len(drawn))
    # No layer copies another's numbers.
    every = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(network)])
    assert len(np.unique(np.abs(every))) > 0.99 * len(every)


def test_the_mlp_is_linear_layers_with_relu_between_them():
    network = eqx.tree_at(
        lambda n: (n.weights, n.biases),
        MLP(2, (8,)),
        (
            [jnp.array([[1.0, -1.0], [0.0, 2.0]]), jnp.array([[3.0], [10.0]])],
            [jnp.array([0.5, 0.0]), jnp.array([-1.0])],
        ),
    )
    # Hidden: relu(x0 + 0.5), relu(-x0 + 2 x1). Output: 3 h0 + 10 h1 - 1; no ReLU at the end.
    assert network(jnp.array([1.0, 2.0])) == 3 * 1.5 + 10 * 3 - 1
    assert network(jnp.array([-2.0, -3.0])) == -1.0


@pytest.mark.parametrize(
    "network",
    [
        MLP(3, (8,)),
        eqx.nn.MLP(5, 1, 4, 1, key=jax.random.key(0)),
        eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)),
        Whole(),
        Mute(jnp.zeros(2)),
        jnp.sum,
        "mlp",
    ],
    ids=["3 inputs", "5 inputs", "2 outputs", "2 rows", "not callable", "function", "string"],
)
def test_a_network_that_cannot_serve_is_refused(network):
    with pytest.raises(ValueError, match=r"^network:.*must map one row"):
        paper_model(LOWER, UPPER, network=network)


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": -0.1},
        {"alpha": 1.1},
        {"alpha": float("nan")},
        {"alpha": "0.1"},
        {"alpha": True},
        {"floor": float("-inf")},
        {"first_visit": -0.1},
        {"first_visit": 1.1},
        {"ceiling": 0.0},
        {"ceiling": -1.0},
        {"num_empty_points": -1},
        {"num_empty_points": 1.5},
        {"num_init_points": 0},
        {"learning_rate": 0.0},
        {"learning_rate": -1e-3},
        {"train_batch_size": 0},
        {"max_epochs": 0},
        {"max_epochs": 2.0},
        {"cutoff": -0.1},
        {"cutoff": float("inf")},
    ],
    ids=str,
)
def test_bad_hyperparameters_are_refused_by_name(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=rf"^{name}: expected .*, got "):
        paper_model(LOWER, UPPER, network=MLP(2, (8,)), **bad)


@pytest.mark.parametrize(
    "edge", [{"alpha": 0}, {"alpha": 1}, {"num_empty_points": 0}, {"cutoff": 0}]
)
def test_the_edges_of_the_hyperparameters_are_allowed(edge):
    (name,) = edge
    model = paper_model(LOWER, UPPER, network=MLP(2, (8,)), **edge)
    assert getattr(model, name) == edge[name]
