"""Laws of spaces and trees: values and vectors, what `evaluate` sees, and what files keep."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam import step
from gloam._tools.trees import Tree
from gloam.emitters.emitter import Bounds
from gloam.errors import ForeignError
from gloam.formats import objects
from gloam.spaces import form_of
from tests.helpers import refused

GRID = gloam.GridArchive((4, 4), 0.0, 1.0, f_min=-5.0)

numbers = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
shapes = st.sampled_from([(), (1,), (3,), (2, 2)])
plain = st.one_of(st.text(max_size=5), st.integers(-99, 99), st.booleans(), st.none())


@st.composite
def variables(draw):
    kind, shape = draw(st.sampled_from(["real", "log", "integer", "categories"])), draw(shapes)
    if kind == "categories":
        # 1, 1.0 and True are the same choice.
        choices = draw(st.lists(plain, min_size=2, max_size=5, unique_by=lambda c: (c == 1, c)))
        unique = [c for i, c in enumerate(choices) if c not in choices[:i]]
        choices = unique if len(unique) > 1 else ["x", "y"]
        ordered = draw(st.booleans())
        is_sequence = len(shape) == 1 and not ordered and draw(st.booleans())
        padding = draw(st.sampled_from(choices)) if is_sequence else None
        return gloam.Categorical(choices, ordered=ordered, shape=shape, padding=padding)
    if kind == "integer":
        low = draw(st.integers(-1000, 1000))
        return gloam.Integer(low, low + draw(st.integers(1, 50)), shape=shape)
    if kind == "log":
        low = draw(st.floats(1e-6, 1e3))
        return gloam.Real(low, low * draw(st.floats(1.5, 1e6)), log=True, shape=shape)
    low = draw(numbers)
    return gloam.Real(low, low + draw(st.floats(1.0, 1e6)), shape=shape)


spaces = st.lists(variables(), min_size=1, max_size=5).map(
    lambda found: gloam.Space(**{f"v{i}": one for i, one in enumerate(found)})
)


def values_in(space, number, draw):
    """Values of a space, as a user would give them."""
    found = {}
    for name, one in space.variables:
        shape = (number, *one.shape)
        uniform = np.array(draw(st.lists(st.floats(0, 1), min_size=1, max_size=9)))
        uniform = np.resize(uniform, shape)
        if isinstance(one, gloam.Categorical):
            table = np.empty(len(one.choices), object)
            table[:] = one.choices
            found[name] = table[(uniform * (len(table) - 1)).round().astype(int)]
        elif isinstance(one, gloam.Integer):
            found[name] = np.rint(one.lower + uniform * (one.upper - one.lower)).astype(int)
        else:
            found[name] = np.float32(one.lower + uniform * (one.upper - one.lower))
            found[name] = np.clip(found[name], *np.float32(one.box()) if not one.log else (0, None))
    return found


def assert_trees_equal(one, other):
    """Equal arrays of numbers or texts; values of float32 and float64 may be equal."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def assert_inside(space, values):
    for name, one in space.variables:
        rows = np.asarray(values[name])
        if isinstance(one, gloam.Categorical):
            assert all(value in one.choices for value in rows.ravel().tolist())
        else:
            assert ((rows >= one.lower) & (rows <= one.upper)).all(), name
            assert not isinstance(one, gloam.Integer) or rows.dtype == np.int32


@given(spaces, st.data())
@settings(max_examples=25, deadline=None)
def test_from_values_to_vectors_and_back_is_the_identity(space, data):
    values = values_in(space, 3, data.draw)
    vectors = space.vectors(values)
    again = space.values(vectors)
    for name, one in space.variables:
        if isinstance(one, gloam.Real) and one.log:
            # An exponential of a rounded logarithm.
            np.testing.assert_allclose(again[name], values[name], rtol=2e-5)
        else:
            np.testing.assert_array_equal(again[name], values[name])
    assert_inside(space, again)
    assert space.bounds[0].shape == (space.size,) == space.start.shape
    single = space.vector({name: rows[1] for name, rows in values.items()})
    np.testing.assert_array_equal(single, vectors[1])
    np.testing.assert_array_equal(space.from_columns(space.columns(vectors)), space.vectors(again))


@given(spaces, st.integers(0, 9))
@settings(max_examples=8, deadline=None)
def test_every_vector_between_the_bounds_snaps_into_the_space(space, seed):
    lower, upper = space.bounds
    draws = np.random.default_rng(seed).uniform(-0.2, 1.2, (20, space.size))
    vectors = jnp.asarray(lower + draws * (upper - lower), jnp.float32)
    for outside in ("clip", "reflect"):
        bounds = Bounds(lower, upper, outside, space)
        snapped = bounds.snap(vectors)
        np.testing.assert_array_equal(bounds.snap(snapped), snapped)
        values = space.values(np.asarray(snapped))
        assert_inside(space, values)
        traced = jax.jit(space.values)(snapped)
        for name, one in space.variables:
            if not isinstance(one, gloam.Categorical):
                np.testing.assert_allclose(traced[name], values[name], rtol=1e-5)


@given(spaces, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_renaming_and_reordering_change_nothing_but_names_and_columns(space, random):
    order = list(range(len(space.variables)))
    random.shuffle(order)
    renamed = gloam.Space(**{f"w{name}": one for name, one in space.variables})
    shuffled = gloam.Space(**{f"v{i}": space.variables[i][1] for i in order})
    np.testing.assert_array_equal(renamed.start, space.start)
    np.testing.assert_array_equal(renamed.bounds, space.bounds)
    places = dict(space.places)
    columns = [places[name] for name, _ in shuffled.places]
    np.testing.assert_array_equal(shuffled.start, space.start[columns])
    np.testing.assert_array_equal(shuffled.bounds, np.array(space.bounds)[:, columns])
    vector = space.start[None]
    assert_trees_equal(shuffled.values(vector[:, columns]), space.values(vector))


@given(spaces)
@settings(max_examples=40, deadline=None)
def test_json_keeps_a_space_and_names_no_code(space):
    content = json.loads(json.dumps(objects.encode(space, {}), sort_keys=True))
    again = objects.decode(content, {})
    assert again == space
    assert repr(again) == repr(space)
    assert "foreign" not in json.dumps(content)


@pytest.mark.parametrize(
    "content",
    [
        {"class": "Space", "arguments": {"variables": {"tuple": [{"foreign": "os:system"}]}}},
        {"class": "Space", "arguments": {"variables": [["a", {"class": "os.system"}]]}},
        {"class": "Space", "arguments": {"variables": [["a", "gloam.Real(0, 1)"]]}},
        {"class": "Space", "arguments": {"variables": [["a"]]}},
        {"class": "Tree", "arguments": {"leaves": [["w", [2], "object"]], "skeleton": None}},
        {"class": "Tree", "arguments": {"leaves": [["w", [2], "float32"]], "skeleton": 4}},
        {"class": "Tree", "arguments": {"leaves": [["w", ["a"], "float32"]], "skeleton": 0}},
        {"class": "Tree", "arguments": {"leaves": 3, "skeleton": None}},
    ],
)
def test_files_that_name_code_or_no_space_are_refused(content):
    with pytest.raises((ForeignError, ValueError)):
        objects.decode(content, {})


# Searches

MIXED = gloam.Space(
    x=gloam.Real(0, 1),
    rate=gloam.Real(1e-4, 1, log=True),
    layers=gloam.Integer(1, 5),
    size=gloam.Categorical(["s", "m", "l"], ordered=True),
    kind=gloam.Categorical(["a", "b", "c"], shape=(2,)),
)
CMA = {"num_emitters": 2, "batch_size": 6}
SLOW = pytest.mark.slow
ALGORITHMS = {
    "dms": lambda space: gloam.DMS(GRID, space, num_init_points=20, **CMA),
    "sep": lambda space: gloam.CMAMAE(GRID, space, strategy=gloam.emitters.SepCMAES(), **CMA),
    "line": lambda space: gloam.MAPElitesLine(GRID, space, batch_size=12),
}


def evaluate(values):
    measures = np.stack([values["x"], (values["layers"] - 1) / 4], axis=1)
    return np.sum(values["kind"] == "b", axis=1) - np.abs(np.log10(values["rate"]) + 2), measures


def traced(values):
    measures = jnp.stack([values["x"], (values["layers"] - 1) / 4], axis=1)
    return jnp.sum(values["kind"] == 1, axis=1) - jnp.abs(jnp.log10(values["rate"]) + 2), measures


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == "line" else SLOW) for one in ALGORITHMS]
)
def test_what_evaluate_sees_is_in_the_space_and_what_the_archive_keeps(name):
    search = gloam.Search(ALGORITHMS[name](MIXED), seed=2)
    for _ in range(5):
        values = search.ask()
        assert_inside(MIXED, values)
        search.tell(*evaluate(values))
    elites = search.elites()
    assert_inside(MIXED, elites.values())
    table = elites.to_pandas()
    assert {"x", "rate", "layers", "size", "kind_0", "kind_1"} <= set(table)
    assert not any(column.startswith("solution") for column in table)
    best = elites.best
    assert elites.solution(best.cell).keys() == best.values.keys() == dict(MIXED.variables).keys()
    assert isinstance(best.values["layers"], int)
    assert best.values["size"] in ("s", "m", "l")


@pytest.mark.slow
def test_renaming_gives_the_same_search():
    names = {name: f"other {name}" for name, _ in MIXED.variables}
    renamed = gloam.Space(**{names[name]: one for name, one in MIXED.variables})
    one, other = (gloam.Search(ALGORITHMS["dms"](space), seed=3) for space in (MIXED, renamed))
    for _ in range(3):
        values = one.ask()
        assert_trees_equal(values, {n: other.ask()[names[n]] for n in values})
        one.tell(*evaluate(values))
        other.tell(*evaluate(values))


@pytest.mark.slow
def test_all_drivers_take_a_space(tmp_path):
    algorithm = ALGORITHMS["dms"](MIXED)

    def one(values):
        assert isinstance(values["layers"], int)
        assert isinstance(values["rate"], float)
        rows = {name: np.asarray(value)[None] for name, value in values.items()}
        objective, measures = evaluate(rows)
        return objective[0], measures[0]

    quiet = {"iterations": 3, "progress": False}
    folder = tmp_path / "run"
    by_driver = [
        gloam.optimize(evaluate, algorithm, **quiet),
        gloam.optimize(one, algorithm, per_solution=True, **quiet),
        gloam.run(traced, algorithm, run_dir=folder, **quiet),
        gloam.optimize(one, algorithm, per_solution=True, asynchronous=True, **quiet),
    ]
    for result in by_driver:
        assert_inside(MIXED, result.elites.values())
    for result in by_driver[1:3]:
        np.testing.assert_allclose(
            result.elites.solutions, by_driver[0].elites.solutions, rtol=1e-4, atol=1e-5
        )
    read = gloam.RunFolder(folder).read_archive()
    assert read.form == MIXED
    assert_trees_equal(read.values(), by_driver[2].elites.values())


@pytest.mark.slow
def test_gradients_move_real_variables_and_leave_whole_numbers_alone():
    emitter = gloam.emitters.GradientAscent(MIXED, batch_size=8)
    algorithm = gloam.Algorithm(emitter, GRID, gloam.discounts.NoDiscount())
    ask = jax.jit(lambda state: step.ask(algorithm, state).solutions)
    advance = jax.jit(lambda state: step.step(algorithm, traced, state))
    state = step.init(algorithm, jax.random.key(4))
    is_whole, moved = MIXED.discrete.is_discrete, 0
    for _ in range(6):
        asked = np.asarray(ask(state))
        # Values would be rounded: the vectors themselves are in the space.
        np.testing.assert_array_equal(MIXED.discrete.snapped(asked), asked)
        assert_inside(MIXED, MIXED.values(asked))
        state, _ = advance(state)
        points = state.emitter.points
        before, after = asked[-len(points.age) :], np.asarray(points.solutions)
        np.testing.assert_array_equal(after[:, is_whole], before[:, is_whole])
        moved += int((after != before)[:, ~is_whole].sum())
    assert moved > 0
    result = gloam.run(traced, algorithm, 6, seeds=[4], progress=False)
    assert_inside(MIXED, result.elites.values())


@pytest.mark.slow
@pytest.mark.parametrize("x0", [MIXED, {"w": np.zeros(3)}], ids=["space", "tree"])
def test_gradients_from_python_are_of_flat_vectors(x0):
    algorithm = gloam.DMS(GRID, x0, 0.2, gradients=True, num_init_points=20, **CMA)
    search = gloam.Search(algorithm)
    number = len(search.ask_vectors())
    sentence = "x0: expected a flat vector, because gradients from Python are those of vectors, got"
    with refused(f"{sentence} a {'space' if x0 is MIXED else 'tree'}. Give a flat vector, and"):
        search.tell(np.zeros(number), np.zeros((number, 2)), vjp=lambda *weights: 0)
    with refused(sentence):
        gloam.optimize(evaluate, algorithm, iterations=1, vjp=lambda *weights: 0, progress=False)


def test_a_saved_search_keeps_its_space(tmp_path):
    search = gloam.Search(ALGORITHMS["line"](MIXED), seed=1)
    search.tell(*evaluate(search.ask()))
    search.save(tmp_path / "search")
    assert_trees_equal(gloam.Search.load(tmp_path / "search").ask(), search.ask())


@pytest.mark.slow
def test_a_ticket_has_the_values_of_one_solution():
    search = gloam.AsyncSearch(ALGORITHMS["dms"](MIXED), seed=1)
    (ticket,) = search.ask(1)
    assert ticket.solution.keys() == dict(MIXED.variables).keys()
    np.testing.assert_allclose(search.vector_of(ticket), MIXED.vector(ticket.solution), rtol=1e-6)


def test_variables_with_the_name_of_a_measure_have_a_column_of_their_own():
    archive = gloam.GridArchive((4, 4), 0.0, 1.0, measure_names=("x", "depth"))
    search = gloam.Search(gloam.MAPElites(archive, MIXED, batch_size=12))
    search.tell(*evaluate(search.ask()))
    table = search.elites().to_pandas()
    assert {"x", "depth", "solution_x"} <= set(table)
    columns = table.drop(columns="x").rename(columns={"solution_x": "x"}).assign(measures_0=0.5)
    columns["measures_1"] = columns["depth"]
    read = gloam.interop.elites_from_pandas(GRID, columns.drop(columns="cell"), MIXED)
    assert_inside(MIXED, read.values())
    again = gloam.Search(search.algorithm, start_from=table)
    np.testing.assert_array_equal(again.elites().solutions, search.elites().solutions)


# Trees

PLAIN = {"w": np.ones((2, 3)), "b": [np.zeros(2), (np.ones(1), None)]}


def test_a_tree_of_containers_is_kept_by_files():
    tree, vector = form_of(PLAIN)
    assert vector.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert tree.size == 9
    again = objects.decode(json.loads(json.dumps(objects.encode(tree, {}), sort_keys=True)), {})
    assert again == tree
    assert hash(again) == hash(tree)
    assert_trees_equal(again.value(vector), PLAIN)
    np.testing.assert_array_equal(tree.vectors(tree.values(vector[None])), vector[None])


class Policy(eqx.Module):
    weight: jax.Array
    size: int = eqx.field(static=True)


def test_a_tree_of_modules_is_kept_by_its_places_and_shapes(tmp_path):
    policy = Policy(jnp.zeros((2, 2)), 2)
    algorithm = gloam.MAPElites(GRID, policy, 0.3, batch_size=8)

    def evaluate(policies):
        assert isinstance(policies, Policy)
        return -jnp.square(policies.weight).sum(axis=(1, 2)), policies.weight[:, 0]

    options = {"progress": False, "run_dir": tmp_path / "run"}
    result = gloam.run(evaluate, algorithm, 3, **options)
    solution = result.elites.solution(result.elites.cells[0])
    assert isinstance(solution, Policy)
    assert solution.weight.shape == (2, 2)
    read = gloam.RunFolder(tmp_path / "run").read_archive()
    assert read.solution(read.cells[0]).keys() == {".weight"}
    longer = gloam.run(evaluate, algorithm, 5, resume=True, **options)
    straight = gloam.run(evaluate, algorithm, 5, progress=False)
    np.testing.assert_array_equal(longer.elites.solutions, straight.elites.solutions)
    other = gloam.MAPElites(GRID, Policy(jnp.zeros((4, 1)), 2), 0.3, batch_size=8)
    with pytest.raises(ValueError, match="cannot be resumed with other settings"):
        gloam.run(lambda p: p.weight[:, :2, 0], other, 5, resume=True, **options)


def test_plain_lists_of_numbers_stay_vectors():
    for x0 in ([0.0, 1.0], (0, 1), np.zeros(2), jnp.zeros(2), [np.float32(0), 1.0]):
        assert form_of(x0)[0] is None
    assert isinstance(form_of([np.zeros(2), np.zeros(2)])[0], Tree)


def test_a_start_of_different_lengths_is_refused():
    with refused("start: expected one value, or an array of shape (), got shape (2,)"):
        gloam.Real(0, 1, start=[[1, 2], [3]])


def test_bounds_in_the_wrong_order_are_refused_on_both_scales():
    for log in (False, True):
        with refused("lower, upper: expected lower < upper in float32, got 1 and -1"):
            gloam.Real(1, -1, log=log)


@pytest.mark.parametrize(
    "x0", [gloam.Real(0, 1), [gloam.Real(0, 1)], {"a": gloam.Real(0, 1), "b": gloam.Integer(1, 3)}]
)
def test_variables_without_a_space_are_answered_by_how_to_make_one(x0):
    with pytest.raises(ValueError, match=r"^x0:"):
        gloam.DMS(GRID, x0, 0.2)


def test_unknown_arguments_of_a_variable_are_answered():
    with pytest.raises(TypeError, match=r"Real\(\) .* 'low'. Did you mean 'lower'"):
        gloam.Real(low=0, high=1)


@pytest.mark.parametrize("pairs", [None, 5, "ab", [3], [("a",)], [(1, gloam.Real(0, 1))]])
def test_a_space_of_other_things_than_pairs_is_refused(pairs):
    with refused("variables: expected a list of pairs"):
        gloam.Space.of(pairs)


@pytest.mark.parametrize("shape", [(), (2,), (3, 5), (2, 2, 2)])
def test_vectors_of_another_shape_are_refused(shape):
    space = gloam.Space(a=gloam.Real(0, 1), b=gloam.Integer(0, 3))
    with refused("vectors: expected shape (batch, 2)"):
        space.values(np.zeros(shape))


def test_choices_that_are_one_number_are_refused():
    with refused("choices: expected a list of choices, got array(3.)"):
        gloam.Categorical(np.array(3.0))


def test_sequences_are_told_apart_and_know_their_padding():
    word = gloam.Categorical(["a", "_"], shape=(3,), padding="_")
    space = gloam.Space(r=gloam.Real(0, 1), v=word, w=word, kind=gloam.Categorical(["x", "y"]))
    assert space.discrete.sequence.tolist() == [0, 2, 2, 2, 3, 3, 3, 0]
    assert space.discrete.padding.tolist() == [-1, 1, 1, 1, 1, 1, 1, -1]


@pytest.mark.parametrize("options", [{}, {"shape": (2, 2)}, {"shape": (3,), "ordered": True}])
def test_padding_needs_one_axis_and_no_order(options):
    with refused("padding: expected choices without an order, and a shape of one number"):
        gloam.Categorical(["a", "b"], padding="a", **options)


def test_padding_is_one_of_the_choices():
    with refused("padding: expected one of ['a', 'b'], got 'c'"):
        gloam.Categorical(["a", "b"], shape=(3,), padding="c")
