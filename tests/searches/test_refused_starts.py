"""Bad spaces and bad warm starts are refused with a sentence that says what to do."""

import numpy as np
import pytest

import gloam
from gloam import Categorical, Integer, Real, Space
from gloam.algorithms import CMAMEGA
from tests.problems import evaluate, small

GRID = gloam.GridArchive((4, 4), 0.0, 1.0)
SPACE = Space(x=Real(0, 1), n=Integer(1, 3), kind=Categorical(["a", "b"]), w=Real(0, 1, shape=(2,)))
GOOD = {"x": [0.5], "n": [2], "kind": ["a"], "w": [[0.1, 0.2]]}
WHOLE = Space(n=Integer(1, 3), kind=Categorical(["a", "b"]))
TREE = {"w": np.zeros((2, 2))}

SPACES = [
    (lambda: Space(), "Space: expected at least one variable, got none. For instance gloam.Space("),
    (lambda: Space(x=3), "x: expected Real or Integer or Categorical, got int 3. Describe each"),
    (lambda: Space(x=Real), "x: expected Real or Integer or Categorical, got the class Real"),
    (lambda: Space(cell=Real(0, 1)), "name of a variable: expected a name that tables of elites"),
    (lambda: Space(**{"": Real(0, 1)}), "name of a variable: expected a text of 1 to 120"),
    (lambda: Space(**{" a": Real(0, 1)}), "name of a variable: expected a text of 1 to 120"),
    (lambda: Space(**{"a\n": Real(0, 1)}), "name of a variable: expected a text of 1 to 120"),
    (
        lambda: Space(w=Real(0, 1, shape=(2,)), w_0=Real(0, 1)),
        "Space: expected different names, also of the numbers in arrays, got 'w_0' twice. Rename",
    ),
    (lambda: Real(1, 0), "lower, upper: expected lower < upper in float32, got 1 and 0"),
    (lambda: Real(1, 1), "lower, upper: expected lower < upper in float32"),
    (lambda: Real(1, 1 + 1e-12), "lower, upper: expected lower < upper in float32"),
    (lambda: Real(None, 1), "lower: expected a finite number, got None. Without bounds, give"),
    (lambda: Real(0, np.inf), "upper: expected a finite number, got inf. Without bounds, give"),
    (lambda: Real("0", 1), "lower: expected a finite number, got '0'"),
    (lambda: Real(0, 1e35), "upper: expected a number between -1e+30 and 1e+30"),
    (lambda: Real(0, 1, log=True), "lower: expected a number > 0 on a log scale, got 0.0. Without"),
    (lambda: Real(0.1, 1, log="yes"), "log: expected bool, got str 'yes'"),
    (lambda: Real(0, 1, shape=3), "shape: expected a list of whole numbers, got 3. Give a shape"),
    (lambda: Real(0, 1, shape=(0,)), "shape: expected a whole number >= 1, got 0. Give a shape"),
    (lambda: Real(0, 1, shape=(10**5, 10**5)), "shape: expected at most 1,000,000 values"),
    (lambda: Real(0, 1, start=2), "start: expected numbers from 0 to 1, got"),
    (lambda: Real(0, 1, start=[0.1, 0.2]), "start: expected one value, or an array of shape ()"),
    (lambda: Integer(3, 3), "lower, upper: expected lower < upper, got 3 and 3. A variable of one"),
    (lambda: Integer(0.5, 3), "lower: expected a whole number >= -16777215, got 0.5. For other"),
    (lambda: Integer(0, 2**30), "upper: expected a whole number >= -16777215 and <= 16777215"),
    (lambda: Integer(0, True), "upper: expected a whole number >= -16777215, got True"),
    (lambda: Integer(0, 3, start=1.5), "start: expected whole numbers from 0 to 3, got"),
    (lambda: Categorical("xy"), "choices: expected a list of choices, got 'xy'. Give a list"),
    (lambda: Categorical(["x"]), "choices: expected from 2 to 1000 choices, got 1. Give a list"),
    (lambda: Categorical(["x", "x"]), "choices: expected different choices, got 'x' twice. Remove"),
    (lambda: Categorical([1, True]), "choices: expected different choices, got True twice"),
    (lambda: Categorical([1.0, np.nan]), "choices: expected texts, numbers, booleans or None"),
    (lambda: Categorical([print, len]), "choices: expected texts, numbers, booleans or None, got"),
    (lambda: Categorical(["a", "b"], ordered=1), "ordered: expected bool, got int 1"),
    (lambda: Categorical(["a", "b"], start="c"), "start: expected one of ['a', 'b'], got 'c'"),
    (lambda: SPACE.vectors([1]), "values: expected Mapping, got list [1]. Give a dict with"),
    (lambda: SPACE.vectors(GOOD | {"y": [1]}), "values: expected the variables x, n, kind, w, got"),
    (lambda: SPACE.vectors({"x": [0.5]}), "values: expected the variables x, n, kind, w, got no"),
    (lambda: SPACE.vectors(GOOD | {"x": [1.5]}), "x: expected numbers from 0 to 1, got"),
    (lambda: SPACE.vectors(GOOD | {"x": [np.nan]}), "x: expected numbers from 0 to 1, got"),
    (lambda: SPACE.vectors(GOOD | {"n": [2.5]}), "n: expected whole numbers from 1 to 3, got"),
    (lambda: SPACE.vectors(GOOD | {"kind": ["z"]}), "kind: expected one of ['a', 'b'], got 'z'"),
    (lambda: SPACE.vectors(GOOD | {"w": [[0.1]]}), "w: expected shape (1, 2), got shape (1, 1)"),
    (lambda: SPACE.vectors(GOOD | {"n": [1, 2]}), "n: expected shape (1,), got shape (2,)"),
    (lambda: gloam.DMS(GRID, SPACE, bounds=(0, 1)), "bounds: expected None for a space, got"),
    (lambda: gloam.DMS(GRID, SPACE, sigma0=3.0), "sigma0: expected a finite number > 0 and <= 1"),
    (lambda: gloam.DMS(GRID, SPACE, outside="again"), "outside: expected 'clip' or 'reflect', got"),
    (lambda: gloam.DMS(GRID, WHOLE, gradients=True), "x0: expected a real variable, because it"),
    (
        lambda: CMAMEGA(GRID, SPACE, 1.0),
        "x0: expected a flat vector, got Space. Use gloam",
    ),
    (lambda: gloam.DMS(GRID, {}, 0.1), "x0: expected a pytree with arrays, got {}. Split other"),
    (
        lambda: gloam.DMS(GRID, {"n": np.arange(3)}, 0.1),
        "x0['n']: expected an array of floats, got",
    ),
    (
        lambda: gloam.DMS(GRID, {"n": print}, 0.1),
        "x0['n']: expected an array of floats, got <built",
    ),
    (
        lambda: gloam.DMS(GRID, {"n": np.zeros((0, 2))}, 0.1),
        "x0['n']: expected at least one number",
    ),
    (lambda: gloam.DMS(GRID, TREE), "sigma0: expected a number for solutions without bounds on"),
]


@pytest.mark.parametrize(("build", "sentence"), SPACES, ids=[s[:40] for _, s in SPACES])
def test_bad_spaces_are_refused(build, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        build()
    assert str(caught.value).startswith(sentence), caught.value


@pytest.fixture(scope="module")
def elites():
    search = gloam.Search(small("cma-mae"), seed=1)
    search.tell(*evaluate(search.ask()))
    return search.elites()


def starting(source, algorithm=None, **options):
    return gloam.run(
        evaluate, algorithm or small("dms"), 1, progress=False, start_from=source, **options
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
    (lambda e: starting(3), "start_from: expected elites, a table or the path of a run folder"),
    (lambda e: starting([e]), "start_from: expected elites, a table or the path of a run folder"),
    (lambda e: starting("no/such/folder"), "run folder: expected a run of gloam, got 'no/such"),
    (
        lambda e: starting(None, reevaluate_start=True),
        "reevaluate_start: expected False without start_from",
    ),
    (
        lambda e: starting(e, reevaluate_start="yes"),
        "reevaluate_start: expected bool, got str 'yes'",
    ),
    (
        lambda e: starting(e, gloam.DMS(GRID, np.zeros(4), 0.1)),
        "start_from: expected solutions of 4 numbers, as x0 has, got 5. Use the same variables",
    ),
    (
        lambda e: gloam.Search(
            gloam.DMS(gloam.GridArchive((3,), 0, 1), np.zeros(5), 0.1), start_from=e
        ),
        "start_from: expected 1 measures, got 2. With reevaluate_start=True",
    ),
    (
        lambda e: starting(e, gloam.DMS(GRID, np.full(5, 0.5), bounds=(0.4, 0.6))),
        "start_from: expected solutions within the bounds, got",
    ),
    (
        lambda e: gloam.Search(
            gloam.DMS(gloam.GridArchive((4, 4), 0, 1, fields={"n": ()}), np.zeros(5), 0.1),
            start_from=e,
        ),
        "start_from: expected fields ['n'], got no field 'n'. With reevaluate_start=True",
    ),
    (lambda e: gloam.Search(mixed(), start_from=e), "start_from: expected solutions of a space of"),
    (
        lambda e: gloam.Search(small("dms"), start_from=mixed_elites()),
        "start_from: expected solutions of plain vectors, got a space of x, n, kind, w. Give a",
    ),
    (
        lambda e: gloam.Search(mixed(Space(x=Real(0, 1))), start_from=mixed_elites()),
        "values: expected the variables x, got unknown 'kind', unknown 'n', unknown 'w'. Rename",
    ),
    (
        lambda e: gloam.Search(
            mixed(Space(**dict(SPACE.variables) | {"n": Integer(5, 9)})), start_from=mixed_elites()
        ),
        "n: expected whole numbers from 5 to 9, got",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().drop(columns="solution_3")),
        "table: expected columns solution_0 to solution_4, got no column 'solution_3'. Add or",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().assign(solution_5=0.0)),
        "table: expected columns solution_0 to solution_4, got a column 'solution_5' as well",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().drop(columns="objective")),
        "start_from: expected columns objective, got no column 'objective'. With reevaluate_start",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().drop(columns="measures_1")),
        "start_from: expected columns measures_0, measures_1, got no column 'measures_1'. With",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().iloc[:0]),
        "table: expected at least one number",
    ),
    (
        lambda e: gloam.Search(mixed(), start_from=mixed_elites().to_pandas().drop(columns="w_1")),
        "table: expected columns x, n, kind, w_0, w_1, got no column 'w_1'. Add or rename",
    ),
    (
        lambda e: gloam.Search(mixed(), start_from=mixed_elites().to_pandas().assign(kind="z")),
        "kind: expected one of ['a', 'b'], got 'z' and",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=e.to_pandas().assign(objective=np.nan)),
        "start_from: expected at least one solution with a valid result, got none. Check",
    ),
    (
        lambda e: gloam.Search(
            gloam.DMS(GRID, TREE, 0.1),
            start_from=elites_of_vectors(),
        ),
        "start_from: expected trees with arrays of shapes [(2, 2)], got [(3,)]",
    ),
    (
        lambda e: gloam.Search(small("dms"), start_from=gloam.Search(small("dms")).elites()),
        "start_from: expected at least one solution, got none. Leave start_from out",
    ),
]


@pytest.mark.parametrize(("start", "sentence"), STARTS, ids=[s[:40] for _, s in STARTS])
def test_bad_starts_are_refused(start, sentence, elites):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        start(elites)
    assert str(caught.value).startswith(sentence), caught.value


def test_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="run folder: expected a run of gloam"):
        starting(tmp_path)


def test_there_are_fifty():
    assert len(SPACES) + len(STARTS) >= 50
