"""Laws of conditional variables: what is active, canonical vectors, tables, files, searches."""

import copy
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam.emitters.discrete import Categories
from gloam.errors import DamagedFileError
from gloam.formats import objects
from gloam.formats.arrays import read_arrays
from tests.helpers import refused
from tests.test_spaces import GRID, variables

pytestmark = pytest.mark.slow  # searches of its own are compiled


@st.composite
def conditional_spaces(draw):
    """Random spaces with nested conditions, in any order; every variable can be active."""
    drawn = draw(st.lists(variables(), min_size=2, max_size=6))
    drawn[0] = draw(st.sampled_from([gloam.Integer(-1, 2), gloam.Categorical(["a", None, 3])]))
    witness, described = {}, {}  # values with which all variables are active, and the arguments
    for index, variable in enumerate(drawn):
        name, when = f"v{index}", {}
        parents = st.lists(st.sampled_from(sorted(witness)), max_size=2, unique=True)
        for parent in draw(parents) if witness else []:
            values = draw(st.lists(st.sampled_from(_some_values(drawn[int(parent[1:])]))))
            when[parent] = [witness[parent], *values][:: draw(st.sampled_from([1, -1]))]
            when[parent] = when[parent][0] if len(values) == 0 else when[parent]
        described[name] = _with(variable, when or None)
        if variable.shape == () and not isinstance(variable, gloam.Real):
            witness[name] = draw(st.sampled_from(_some_values(variable)))
    order = draw(st.permutations(sorted(described)))
    return gloam.Space(**{name: described[name] for name in order})


def _some_values(variable):
    if isinstance(variable, gloam.Categorical):
        return list(variable.choices)
    return sorted({variable.lower, variable.upper, (variable.lower + variable.upper) // 2})


def _with(variable, when):
    names = ["lower", "upper", "log", "choices", "ordered", "shape", "start"]
    arguments = {name: getattr(variable, name) for name in names if hasattr(variable, name)}
    return type(variable)(**arguments, when=when)


def random_vectors(space, seed, number=12):
    """Vectors in the space, with values of inactive variables as well."""
    lower, upper = space.bounds
    draws = np.random.default_rng(seed).uniform(lower, upper, (number, space.size))
    return np.asarray(space.discrete.snapped(draws.astype(np.float32)))


def is_active(space, name, values):
    """The definition, for the values of one solution."""
    return all(
        is_active(space, other, values) and values[other] in accepted
        for other, accepted in dict(space.variables)[name].when or ()
    )


def masks_of(space, vectors):
    """The masks by the definition, from the values of each solution."""
    values = {name: array.tolist() for name, array in space.values(vectors).items()}
    rows = [{name: array[i] for name, array in values.items()} for i in range(len(vectors))]
    return {name: [is_active(space, name, row) for row in rows] for name, _ in space.variables}


seeds = st.integers(0, 99)


@given(conditional_spaces(), seeds)
@settings(max_examples=25, deadline=None)
def test_all_ways_to_compute_what_is_active_agree_with_the_definition(space, seed):
    vectors = random_vectors(space, seed)
    values, expected = space.values(vectors), masks_of(space, vectors)
    indices = space.values(jnp.asarray(vectors))
    single = {name: array[3] for name, array in values.items()}
    for name, mask in expected.items():
        assert space.active(values)[name].tolist() == mask
        assert space.active(indices)[name].tolist() == mask
        assert space.active(single)[name].tolist() == mask[3]
    in_jax = jax.jit(jax.vmap(space.active))(indices)
    assert {name: mask.tolist() for name, mask in in_jax.items()} == expected
    columns = [expected[name] for name, v in space.variables for _ in range(v.size)]
    np.testing.assert_array_equal(space.active_numbers(vectors), np.transpose(columns))
    names = [name for name, _ in space.variables if expected[name][3]]
    assert list(space.value(vectors[3])) == names


@given(conditional_spaces(), seeds)
@settings(max_examples=25, deadline=None)
def test_canonical_vectors_differ_in_active_variables_alone(space, seed):
    vectors, others = random_vectors(space, seed), random_vectors(space, seed + 1)
    canonical, active = space.canonical(vectors), space.active_numbers(vectors)
    np.testing.assert_array_equal(canonical[active], vectors[active])
    starts = np.broadcast_to(space.start, vectors.shape)
    np.testing.assert_array_equal(canonical[~active], starts[~active])
    np.testing.assert_array_equal(space.canonical(canonical), canonical)
    # What inactive variables were does not matter.
    np.testing.assert_array_equal(space.canonical(np.where(active, vectors, others)), canonical)
    np.testing.assert_array_equal(jax.jit(space.canonical)(vectors), canonical)


@given(conditional_spaces(), seeds)
@settings(max_examples=25, deadline=None)
def test_values_tables_and_json_give_the_canonical_vectors_back(space, seed):
    vectors = random_vectors(space, seed)
    canonical, active = space.canonical(vectors), space.active_numbers(vectors)
    close = {"rtol": 2e-5, "atol": 1e-6}  # logarithms are computed again
    np.testing.assert_allclose(space.vectors(space.values(vectors)), canonical, **close)
    for row, vector in zip(vectors, canonical, strict=True):
        np.testing.assert_allclose(space.vector(space.value(row)), vector, **close)
    table = space.columns(vectors)
    np.testing.assert_allclose(space.from_columns(table), canonical, **close)
    without = gloam.Space(**{name: _with(one, None) for name, one in space.variables})
    whole = without.columns(vectors)
    for column, mask in zip(table, active.T, strict=True):
        assert table[column][mask].tolist() == whole[column][mask].tolist()
        assert pd.isna(table[column][~mask]).all()
    numbers, choices = space.numbers(vectors)
    np.testing.assert_array_equal(np.isnan(numbers), ~active)
    for row, texts in enumerate(space.texts(vectors)):
        for column, text in enumerate(texts.values()):
            assert active[row, column] or text == ""
            if active[row, column] and choices[column] is not None:
                assert choices[column][int(numbers[row, column])] == text
    again = objects.decode(json.loads(json.dumps(objects.encode(space, {}), sort_keys=True)), {})
    assert again == space
    assert hash(again) == hash(space)


# Searches

PIPELINE = gloam.Space(
    x=gloam.Real(0, 1),
    degree=gloam.Integer(2, 5, when={"kernel": "poly"}),
    model=gloam.Categorical(["svm", "forest", "knn"]),
    C=gloam.Real(1e-3, 1e3, log=True, when={"model": "svm"}),
    kernel=gloam.Categorical(["rbf", "poly"], when={"model": "svm"}),
    depth=gloam.Integer(1, 20, when={"model": "forest"}),
    weight=gloam.Categorical([None, "balanced"], when={"model": ("svm", "forest")}),
    powers=gloam.Real(-1, 1, shape=(2,), when={"model": ("svm", "knn")}),
)
CMA = {"num_emitters": 2, "batch_size": 6}
SLOW = pytest.mark.release
ALGORITHMS = {
    "dms": lambda space, **options: gloam.DMS(GRID, space, num_init_points=20, **CMA, **options),
    "line": lambda space: gloam.MAPElitesLine(GRID, space, batch_size=12),
}


def evaluate_one(values):
    objective = 0.0
    if values["model"] == "svm":
        objective -= abs(np.log10(values["C"]) - 1)
    if "degree" in values:
        objective -= abs(values["degree"] - 3)
    if "depth" in values:
        objective -= abs(values["depth"] - 7) / 10
    if "powers" in values:
        objective -= float(np.square(values["powers"]).sum())
    return objective, [values["x"], len(values) / 8]


def evaluate(values, of=np):
    active = PIPELINE.active(values)
    powers = of.sum(values["powers"] ** 2, axis=1)
    terms = {"C": abs(of.log10(values["C"]) - 1), "degree": abs(values["degree"] - 3)}
    terms |= {"depth": abs(values["depth"] - 7) / 10, "powers": powers}
    number = sum(active[name].astype(np.int32) for name in active)
    objectives = sum(of.where(active[name], -term, 0.0) for name, term in terms.items())
    return objectives, of.stack([values["x"], number / 8], axis=1)


def traced(values):
    return evaluate(values, jnp)


def assert_canonical(vectors):
    np.testing.assert_array_equal(PIPELINE.canonical(vectors), vectors)
    np.testing.assert_array_equal(PIPELINE.discrete.snapped(vectors), vectors)


@pytest.mark.parametrize("name", [pytest.param("dms", marks=SLOW), "line"])
def test_asked_solutions_and_elites_never_differ_in_inactive_variables_alone(name, tmp_path):
    search = gloam.Search(ALGORITHMS[name](PIPELINE), seed=2)
    models = set()
    for _ in range(5):
        vectors = np.array(search.ask_vectors())
        assert_canonical(vectors)
        models |= set(search.ask()["model"].tolist())
        search.tell(*evaluate(search.ask()))
    assert models == {"svm", "forest", "knn"}
    elites = search.elites()
    assert_canonical(elites.solutions)
    for cell in elites.cells:
        found = elites.solution(cell)
        objective, measures = evaluate_one(found)
        np.testing.assert_allclose(elites.elite(cell).objective, objective, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(elites.elite(cell).measures, measures, rtol=1e-6)
    search.save(tmp_path / "search")
    again = gloam.Search.load(tmp_path / "search")
    np.testing.assert_array_equal(again.ask_vectors(), search.ask_vectors())
    path, csv = tmp_path / "elites.parquet", tmp_path / "elites.csv"
    gloam.interop.elites_to_parquet(elites, path)
    elites.to_pandas().to_csv(csv, index=False)
    read = gloam.interop.elites_from_parquet(GRID, path, PIPELINE)
    np.testing.assert_allclose(read.solutions, elites.solutions, rtol=2e-5, atol=1e-6)
    for table in (elites.to_pandas(), pd.read_csv(csv), pd.read_parquet(path)):
        assert table["depth"].isna().tolist() == (table["model"] != "forest").tolist()
        started = gloam.Search(search.algorithm, start_from=table).elites()
        np.testing.assert_allclose(started.solutions, elites.solutions, rtol=2e-5, atol=1e-6)


@SLOW
def test_all_drivers_evaluate_the_same_solutions(tmp_path):
    algorithm, quiet = ALGORITHMS["dms"](PIPELINE), {"iterations": 3, "progress": False}
    folder = tmp_path / "run"
    by_driver = [
        gloam.optimize(evaluate, algorithm, **quiet),
        gloam.optimize(evaluate_one, algorithm, per_solution=True, **quiet),
        gloam.run(traced, algorithm, run_dir=folder, **quiet),
    ]
    for result in by_driver:
        assert_canonical(result.elites.solutions)
        np.testing.assert_allclose(
            result.elites.solutions, by_driver[0].elites.solutions, rtol=1e-4, atol=1e-5
        )
    asynchronous = gloam.optimize(
        evaluate_one, algorithm, per_solution=True, asynchronous=True, **quiet
    )
    assert_canonical(asynchronous.elites.solutions)
    read = gloam.RunFolder(folder).read_archive()
    assert read.form == PIPELINE
    again = {"resume": True, "run_dir": folder, "progress": False}
    longer = gloam.run(traced, algorithm, 5, **again)
    straight = gloam.run(traced, algorithm, 5, progress=False)
    np.testing.assert_array_equal(longer.elites.solutions, straight.elites.solutions)
    # With other ranges and conditions.
    wide = dict(PIPELINE.variables) | {"depth": gloam.Integer(0, 30)}
    other = ALGORITHMS["line"](gloam.Space(**wide))
    started = gloam.Search(other, start_from=read).elites()
    values = started.values()
    assert (values["depth"] == 10)[values["model"] != "forest"].all()


@SLOW
def test_gradients_keep_solutions_canonical():
    algorithm = ALGORITHMS["dms"](PIPELINE, gradients=True)
    result = gloam.run(traced, algorithm, 6, progress=False)
    assert_canonical(result.elites.solutions)


@SLOW
def test_a_condition_that_always_holds_changes_nothing():
    plain = gloam.Space(x=gloam.Real(0, 1), kind=gloam.Categorical([*"abc"]), n=gloam.Integer(1, 5))
    always = dict(plain.variables) | {"n": gloam.Integer(1, 5, when={"kind": [*"abc"]})}
    always |= {"x": gloam.Real(0, 1, when={"kind": [*"cba"]})}
    searches = [gloam.Search(ALGORITHMS["line"](s), 3) for s in (plain, gloam.Space(**always))]
    for _ in range(3):
        one, other = (np.array(search.ask_vectors()) for search in searches)
        np.testing.assert_allclose(one, other, atol=1e-6)
        for search in searches:
            search.tell(one[:, 0] - one[:, 1], one[:, :2] / 2)


def test_vectors_without_conditions_are_left_alone():
    space = gloam.Space(x=gloam.Real(0, 1), kind=gloam.Categorical(["a", "b"]))
    vectors = jnp.zeros((3, 2))
    assert space.canonical(vectors) is vectors
    emitter = gloam.emitters.Variation(space)
    assert emitter.completed(vectors, vectors + 1) is vectors


@pytest.mark.parametrize(
    "emitter",
    [
        gloam.emitters.Recombination(PIPELINE, iso_sigma=1e-6, batch_size=60),
        gloam.emitters.Swaps(PIPELINE, iso_sigma=1e-6, batch_size=60),
        gloam.emitters.Variation(PIPELINE, 1e-6, line_sigma=0.5, batch_size=60),
    ],
    ids=lambda emitter: type(emitter).__name__,
)
def test_a_variable_that_one_of_two_elites_has_keeps_its_value(emitter):
    svm = {"x": 0.5, "model": "svm", "C": 100, "kernel": "rbf", "weight": "balanced"}
    svm["powers"] = [0.9, -0.9]
    forest = {"x": 0.5, "model": "forest", "depth": 18, "weight": "balanced"}
    both = jnp.asarray([PIPELINE.vector(svm), PIPELINE.vector(forest)])
    number = sum(draw.number for draw in emitter.elites_to_ask)
    elites = both[np.random.default_rng(0).integers(0, 2, number)]
    solutions = emitter.ask(None, elites, key=jax.random.key(1)).solutions
    values = PIPELINE.values(np.asarray(solutions))
    active = PIPELINE.active(values)
    assert {"svm", "forest"} <= set(values["model"].tolist())
    # Choices and integers may also change at random, and so may the model of two equal elites.
    known = {"C": 100, "powers": [0.9, -0.9]}
    for name, value in known.items():
        rows = values[name][active[name]]
        is_start = np.isclose(rows, PIPELINE.value(PIPELINE.start)[name], rtol=1e-3, atol=1e-3)
        is_known = np.isclose(rows, value, rtol=1e-3)
        assert (is_known | is_start).all()
        assert is_known.mean() > 0.8
    depths = values["depth"][active["depth"]]
    assert (depths == 18).mean() > 0.5
    assert not ((depths > 10) & (depths < 14)).any()


def test_categories_learn_from_solutions_in_which_they_are_active():
    categories = Categories(PIPELINE.discrete)
    vectors, others = (random_vectors(PIPELINE, seed).reshape(2, 6, -1) for seed in (0, 1))
    active = PIPELINE.active_numbers(vectors)
    weights = jnp.asarray(np.random.default_rng(2).dirichlet(np.ones(6), 2), jnp.float32)
    probabilities = categories.fresh(vectors[:, 0])
    learned = categories.learned(probabilities, vectors, weights, 0.5, active)
    same = categories.learned(
        probabilities, np.where(active, vectors, others), weights, 0.5, active
    )
    np.testing.assert_array_equal(learned, same)
    everywhere = np.ones_like(active)
    np.testing.assert_allclose(
        categories.learned(probabilities, vectors, weights, 0.5, everywhere),
        categories.learned(probabilities, vectors, weights, 0.5),
        rtol=1e-5,
    )
    nowhere = categories.learned(probabilities, vectors, weights, 0.5, ~everywhere)
    np.testing.assert_allclose(nowhere, np.maximum(probabilities, categories.smallest), rtol=1e-5)


# Errors

CHOICE = gloam.Categorical(["a", "b"])


@pytest.mark.parametrize(
    ("described", "names"),
    [
        ({"x": gloam.Real(0, 1, when={"colour": "a"})}, ["'x'", "'colour'"]),
        ({"x": gloam.Real(0, 1, when={"y": 1}), "y": gloam.Real(0, 1)}, ["'x'", "'y'", "Real"]),
        ({"x": gloam.Real(0, 1, when={"kind": "c"}), "kind": CHOICE}, ["'x'", "'kind'", "'c'"]),
        ({"x": gloam.Real(0, 1, when={"n": 7}), "n": gloam.Integer(0, 3)}, ["'x'", "'n'", "7"]),
        ({"x": gloam.Real(0, 1, when={"n": 1.5}), "n": gloam.Integer(0, 3)}, ["'n'", "1.5"]),
        ({"x": gloam.Real(0, 1, when={"n": True}), "n": gloam.Integer(0, 3)}, ["'n'", "True"]),
        (
            {"x": gloam.Real(0, 1, when={"n": 1}), "n": gloam.Integer(0, 3, shape=(2,))},
            ["'x'", "'n'", "(2,)"],
        ),
        ({"n": gloam.Integer(0, 3, when={"n": 1})}, ["n <- n"]),
        (
            {
                "n": gloam.Integer(0, 3, when={"kind": "a"}),
                "kind": gloam.Categorical(["a", "b"], when={"n": 1}),
            },
            ["n <- kind <- n"],
        ),
        (
            {
                "kind": CHOICE,
                "n": gloam.Integer(0, 3, when={"kind": "a"}),
                "x": gloam.Real(0, 1, when={"n": 2, "kind": "b"}),
            },
            ["'x'", "'kind'"],
        ),
        (
            {f"n{i}": gloam.Integer(0, 9, when={"n": list(range(10))}) for i in range(1001)}
            | {"n": gloam.Integer(0, 9)},
            ["1,001"],
        ),
    ],
)
def test_impossible_conditions_are_refused_by_name(described, names):
    with refused("when", *names):
        gloam.Space(**described)


@pytest.mark.parametrize(
    "when", ["svm", {}, 3, {3: "a"}, {"kind": ()}, {"kind": [["a"]]}, {"n": range(10**9)}, [("a",)]]
)
def test_conditions_of_another_form_are_refused(when):
    with refused("when"):
        gloam.Real(0, 1, when=when)


def test_values_of_active_variables_are_needed_and_those_of_others_are_not_used():
    values = {"x": 0.5, "model": "svm", "C": 10, "kernel": "rbf", "powers": [0, 0]}
    values["weight"] = None
    vector = PIPELINE.vector(values)
    np.testing.assert_array_equal(PIPELINE.vector(values | {"depth": -3}), vector)
    with refused("C", "'svm'"):
        PIPELINE.vector({name: value for name, value in values.items() if name != "C"})
    for wrong in (np.nan, None, 1e9):
        with refused("C"):
            PIPELINE.vector(values | {"C": wrong})
    with refused("values", "'kernel'"):
        PIPELINE.active({"x": np.zeros(3), "model": np.full(3, "svm")})


def _file(**whens):
    pairs = [{"tuple": ["kind", objects.encode(CHOICE, {})]}]
    for name, when in whens.items():
        content = objects.encode(gloam.Integer(0, 3), {})
        content["arguments"]["when"] = when
        pairs.append({"tuple": [name, content]})
    return {"class": "Space", "arguments": {"variables": {"tuple": pairs}}}


@pytest.mark.parametrize(
    "content",
    [
        _file(a=[["b", [1]]], b=[["a", [1]]]),
        _file(a=[["os.system", [1]]]),
        _file(a=[["kind", [{"foreign": "os:system"}]]]),
        _file(a=[["kind", ["a"] * 1001]]),
        _file(a=[["kind", ["a"]], ["kind", ["b"]]]),
        _file(a=[["kind"]]),
        _file(a="kind"),
        _file(a={"dict": {}}),
        _file(**{f"a{i}": [["kind", ["a"]]] for i in range(1001)}),
    ],
)
def test_files_with_impossible_conditions_are_refused(content):
    with pytest.raises((ValueError, gloam.errors.ForeignError)):
        objects.decode(content, {})


def test_a_run_folder_with_a_circle_of_conditions_is_refused(tmp_path):
    folder = tmp_path / "run"
    algorithm = ALGORITHMS["line"](PIPELINE)
    gloam.optimize(evaluate, algorithm, 1, run_dir=folder, progress=False)
    assert gloam.RunFolder(folder).read_archive().form == PIPELINE
    config = gloam.RunFolder(folder).read_config()
    forged = copy.deepcopy(config.algorithm)
    pairs = objects.first_of_class(forged, ("Space",))["arguments"]["variables"]["tuple"]
    (model,) = (pair["tuple"][1] for pair in pairs if pair["tuple"][0] == "model")
    model["arguments"]["when"] = {"tuple": [{"tuple": ["kernel", {"tuple": ["rbf"]}]}]}
    crafted, arrays = (
        tmp_path / "crafted",
        read_arrays(folder / "config.npz", kind="config", fix=""),
    )
    crafted.mkdir()
    changed = dataclasses.replace(config, algorithm=forged)
    gloam.RunFolder(crafted).write_config(changed, arrays[0])
    with pytest.raises(DamagedFileError, match="kernel <- model"):
        gloam.RunFolder(crafted).read_part("algorithm")
