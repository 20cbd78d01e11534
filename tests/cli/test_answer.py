"""`gloam answer`: from a run folder and new items to a table of solutions."""

import numpy as np
import pandas as pd
import pytest

import gloam
from tests.cli.conftest import run, stopped

pytestmark = pytest.mark.slow  # searches of its own are compiled

NEW = np.random.default_rng(5).uniform(-1, 1, (6, 2)).astype(np.float32)


def answer(*more):
    return ["answer", "runs/x", "--function", "mine.py", "--dataset", "new.npy", "--quiet", *more]


def test_new_items_get_a_table_of_solutions_and_a_page(filled, problem, capsys):
    np.save(problem / "new.npy", NEW)
    run(*answer("--evaluations", "12"))
    printed, out = capsys.readouterr().out, problem / "runs" / "answer"
    assert "12 evaluations" in printed
    table = pd.read_parquet(out / "answers.parquet")
    solutions = table[["solution_0", "solution_1"]].to_numpy()
    np.testing.assert_allclose(np.tanh(solutions), table[["measures_0", "measures_1"]], atol=1e-6)
    expected = gloam.answer(np.tanh, filled[0], NEW, 12).elites.solutions
    np.testing.assert_array_equal(solutions, expected)
    assert len(pd.read_csv(out / "matches.csv")) == len(NEW)
    assert "<html" in (out / "gallery.html").read_text()


def test_without_evaluations_the_answers_are_elites(filled, problem, capsys):
    np.save(problem / "new.npy", NEW)
    (problem / "mine.py").write_text("def evaluate(x):\n    raise SystemExit('evaluated')\n")
    run(*answer("--evaluations", "0", "--out", "there"))
    table = pd.read_parquet(problem / "there" / "answers.parquet")
    known = {tuple(row) for row in gloam.RunFolder(filled[0]).read_archive().solutions.tolist()}
    assert {tuple(row) for row in table[["solution_0", "solution_1"]].to_numpy().tolist()} <= known


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--out", "runs/x"], "runs/x"),
        (["--evaluations", "-1"], "evaluations"),
        (["--dataset", "wide.npy"], "items"),
        (["--dataset", "nowhere"], "dataset"),
        (["--function", "mine.py:none"], "function"),
        (["--timeout", "1"], "workers"),
    ],
)
def test_mistakes_are_named_before_an_evaluation(filled, problem, capsys, more, name):
    np.save(problem / "new.npy", NEW)
    np.save(problem / "wide.npy", np.eye(3))
    assert name in stopped(capsys, *answer(*more))
    assert not (problem / "runs" / "answer").exists()
