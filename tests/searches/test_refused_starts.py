"""Bad spaces and bad warm starts are refused: the message has the argument's name and the value."""

import numpy as np
import pytest

import gloam
from gloam import Categorical, Integer, Real, Space
from gloam_lab import CMAMEGA
from tests.problems import evaluate, small

GRID = gloam.GridArchive((4, 4), 0.0, 1.0)
SPACE = Space(x=Real(0, 1), n=Integer(1, 3), kind=Categorical(["a", "b"]), w=Real(0, 1, shape=(2,)))
GOOD = {"x": [0.5], "n": [2], "kind": ["a"], "w": [[0.1, 0.2]]}
WHOLE = Space(n=Integer(1, 3), kind=Categorical(["a", "b"]))
TREE = {"w": np.zeros((2, 2))}

SPACES = [
    (lambda: Space(), "Space: none"),
    (lambda: Space(x=3), "x: int 3"),
    (lambda: Space(x=Real), "x: the class Real"),
    (lambda: Space(cell=Real(0, 1)), "name of a variable: a name that tables of elites"),
    (lambda: Space(**{"": Real(0, 1)}), "name of a variable: a text of 1 to 120"),
    (lambda: Space(**{" a": Real(0, 1)}), "name of a variable: a text of 1 to 120"),
    (lambda: Space(**{"a\n": Real(0, 1)}), "name of a variable: a text of 1 to 120"),
    (
        lambda: Space(w=Real(0, 1, shape=(2,)), w_0=Real(0, 1)),
        "Space: 'w_0' twice",
    ),
    (lambda: Real(1, 0), "lower, upper: 1 and 0"),
    (lambda: Real(1, 1), "lower, upper: lower < upper in float32"),
    (lambda: Real(1, 1 + 1e-12), "lower, upper: lower < upper in float32"),
    (lambda: Real(None, 1), "lower: None"),
    (lambda: Real(0, np.inf), "upper: inf"),
    (lambda: Real("0", 1), "lower: '0'"),
    (lambda: Real(0, 1e35), "upper: a number between -1e+30 and 1e+30"),
    (lambda: Real(0, 1, log=True), "lower: 0.0"),
    (lambda: Real(0.1, 1, log="yes"), "log: str 'yes'"),
    (lambda: Real(0, 1, shape=3), "shape: 3"),
    (lambda: Real(0, 1, shape=(0,)), "shape: 0"),
    (lambda: Real(0, 1, shape=(10**5, 10**5)), "shape: at most 1,000,000 values"),
    (lambda: Real(0, 1, start=2), "start: numbers from 0 to 1"),
    (lambda: Real(0, 1, start=[0.1, 0.2]), "start: one value, or an array of shape ()"),
    (lambda: Integer(3, 3), "lower, upper: 3 and 3"),
    (lambda: Integer(0.5, 3), "lower: 0.5"),
    (lambda: Integer(0, 2**30), "upper: a whole number >= -16777215 and <= 16777215"),
    (lambda: Integer(0, True), "upper: True"),
    (lambda: Integer(0, 3, start=1.5), "start: whole numbers from 0 to 3"),
    (lambda: Categorical("xy"), "choices: 'xy'"),
    (lambda: Categorical(["x"]), "choices: 1"),
    (lambda: Categorical(["x", "x"]), "choices: 'x' twice"),
    (lambda: Categorical([1, True]), "choices: True twice"),
    (lambda: Categorical([1.0, np.nan]), "choices: texts, numbers, booleans or None"),
    (lambda: Categorical([print, len]), "choices: texts, numbers, booleans or None"),
    (lambda: Categorical(["a", "b"], ordered=1), "ordered: int 1"),
    (lambda: Categorical(["a", "b"], start="c"), "start: 'c'"),
    (lambda: SPACE.vectors([1]), "values: list [1]"),
    (lambda: SPACE.vectors(GOOD | {"y": [1]}), "values: the variables x, n, kind, w"),
    (lambda: SPACE.vectors({"x": [0.5]}), "values: no"),
    (lambda: SPACE.vectors(GOOD | {"x": [1.5]}), "x: numbers from 0 to 1"),
    (lambda: SPACE.vectors(GOOD | {"x": [np.nan]}), "x: numbers from 0 to 1"),
    (lambda: SPACE.vectors(GOOD | {"n": [2.5]}), "n: whole numbers from 1 to 3"),
    (lambda: SPACE.vectors(GOOD | {"kind": ["z"]}), "kind: 'z'"),
    (lambda: SPACE.vectors(GOOD | {"w": [[0.1]]}), "w: shape (1, 1)"),
    (lambda: SPACE.vectors(GOOD | {"n": [1, 2]}), "n: shape (2,)"),
    (lambda: gloam.DMS(GRID, SPACE, bounds=(0, 1)), "bounds: None for a space"),
    (lambda: gloam.DMS(GRID, SPACE, sigma0=3.0), "sigma0: a finite number > 0 and <= 1"),
    (lambda: gloam.DMS(GRID, SPACE, outside="again"), "outside: 'clip' or 'reflect'"),
    (lambda: gloam.DMS(GRID, WHOLE, gradients=True), "x0: a real variable, because it"),
    (
        lambda: CMAMEGA(GRID, SPACE, 1.0),
        "x0: Space",
    ),
    (lambda: gloam.DMS(GRID, {}, 0.1), "x0: {}"),
    (
        lambda: gloam.DMS(GRID, {"n": np.arange(3)}, 0.1),
        "x0['n']: an array of floats",
    ),
    (
        lambda: gloam.DMS(GRID, {"n": print}, 0.1),
        "x0['n']: <built",
    ),
    (
        lambda: gloam.DMS(GRID, {"n": np.zeros((0, 2))}, 0.1),
        "x0['n']: at least one number",
    ),
    (lambda: gloam.DMS(GRID, TREE), "sigma0: a number for solutions without bounds on"),
]


def assert_names(error, words):
    """A message begins with the name of the argument, and contains the value."""
    name, _, value = words.partition(": ")
    assert str(error).startswith(f"{name}:"), error
    assert value in str(error), error


@pytest.mark.parametrize(("build", "words"), SPACES, ids=[s[:40] for _, s in SPACES])
def test_bad_spaces_are_refused(build, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        build()
    assert_names(caught.value, words)


@pytest.fixture(scope="module")
def elites():
    search = gloam.Search(small("map-elites-line"), seed=1)
    search.tell(*evaluate(search.ask()))
    return search.elites()


def starting(source, algorithm=None, **options):
    return gloam.run(
        evaluate,
        algorithm or small("map-elites-line"),
        1,
        progress=False,
        start_from=source,
        **options,
    )


def mixed(space=SPACE):
    return gloam.MAPElites(GRID, space, batch_size=8)


def mixed_elites():
    search = gloam.Search(mixed())
    values = search.ask()
    search.tell(values["x"], values["w"])
    return search.elites()


def elites_of_vectors():
    search = gloam.Search(gloam.MAPElites(GRID, {"w": np.zeros(3)}, 0.1, batch_size=8))
    measures = search.ask()["w"][:, :2]
    search.tell(measures[:, 0], measures)
    return search.elites()


STARTS = [
    (lambda e: starting(3), "start_from: elites, a table or the path of a run folder"),
    (lambda e: starting([e]), "start_from: elites, a table or the path of a run folder"),
    (lambda e: starting("no/such/folder"), "run folder: 'no/such"),
    (
        lambda e: starting(None, reevaluate_start=True),
        "reevaluate_start: False without start_from",
    ),
    (
        lambda e: starting(e, reevaluate_start="yes"),
        "reevaluate_start: str 'yes'",
    ),
    (
        lambda e: starting(e, gloam.MAPElites(GRID, np.zeros(4), 0.1)),
        "start_from: 5",
    ),
    (
        lambda e: gloam.Search(
            gloam.MAPElites(gloam.GridArchive((3,), 0, 1), np.zeros(5), 0.1), start_from=e
        ),
        "start_from: 2",
    ),
    (
        lambda e: starting(e, gloam.MAPElites(GRID, np.full(5, 0.5), bounds=(0.4, 0.6))),
        "start_from: solutions within the bounds",
    ),
    (
        lambda e: gloam.Search(
            gloam.MAPElites(gloam.GridArchive((4, 4), 0, 1, fields={"n": ()}), np.zeros(5), 0.1),
            start_from=e,
        ),
        "start_from: no field 'n'",
    ),
    (lambda e: gloam.Search(mixed(), start_from=e), "start_from: solutions of a space of"),
    (
        lambda e: gloam.Search(small("map-elites-line"), start_from=mixed_elites()),
        "start_from: a space of x, n, kind, w",
    ),
    (
        lambda e: gloam.Search(mixed(Space(x=Real(0, 1))), start_from=mixed_elites()),
        "values: unknown 'kind', unknown 'n', unknown 'w'",
    ),
    (
        lambda e: gloam.Search(
            mixed(Space(**dict(SPACE.variables) | {"n": Integer(5, 9)})), start_from=mixed_elites()
        ),
        "n: whole numbers from 5 to 9",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=e.to_pandas().drop(columns="solution_3")
        ),
        "table: no column 'solution_3'",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=e.to_pandas().assign(solution_5=0.0)
        ),
        "table: a column 'solution_5' as well",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=e.to_pandas().drop(columns="objective")
        ),
        "start_from: no column 'objective'",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=e.to_pandas().drop(columns="measures_1")
        ),
        "start_from: no column 'measures_1'",
    ),
    (
        lambda e: gloam.Search(small("map-elites-line"), start_from=e.to_pandas().iloc[:0]),
        "table: at least one number",
    ),
    (
        lambda e: gloam.Search(mixed(), start_from=mixed_elites().to_pandas().drop(columns="w_1")),
        "table: no column 'w_1'",
    ),
    (
        lambda e: gloam.Search(mixed(), start_from=mixed_elites().to_pandas().assign(kind="z")),
        "kind: 'z' and",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=e.to_pandas().assign(objective=np.nan)
        ),
        "start_from: none",
    ),
    (
        lambda e: gloam.Search(
            gloam.MAPElites(GRID, TREE, 0.1),
            start_from=elites_of_vectors(),
        ),
        "start_from: [(3,)]",
    ),
    (
        lambda e: gloam.Search(
            small("map-elites-line"), start_from=gloam.Search(small("map-elites-line")).elites()
        ),
        "start_from: none",
    ),
]


@pytest.mark.parametrize(("start", "words"), STARTS, ids=[s[:40] for _, s in STARTS])
def test_bad_starts_are_refused(start, words, elites):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        start(elites)
    assert_names(caught.value, words)


def test_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^run folder: .* config\.json"):
        starting(tmp_path)
