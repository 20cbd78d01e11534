"""The programs: a grammar whose texts are parsed, varied and never run, and a small search."""

import numpy as np
import pytest
from PIL import Image

from tests.helpers import refused

expressions = pytest.importorskip("expressions")
search_programs = pytest.importorskip("search_programs")

X = search_programs.X


@pytest.mark.parametrize("seed", range(30))
def test_texts_come_back_as_trees_and_mean_what_python_means(seed):
    random = np.random.default_rng(seed)
    text = expressions.text_of(expressions.random_tree(random))
    for _ in range(10):
        text = expressions.mutated(text, random)
        tree = expressions.tree_of(text)
        assert expressions.text_of(tree) == text
        assert expressions.size_of(tree) <= expressions.LARGEST
        names = {"sin": np.sin, "abs": abs, "min": min, "max": max}
        with np.errstate(all="ignore"):
            values = expressions.values_of(tree, X)
            expected = [eval(text, names | {"x": x}) for x in X]
        np.testing.assert_allclose(values, expected, rtol=1e-6)
        assert expressions.tree_of(expressions.shown(text)) == tree


@pytest.mark.parametrize(
    "text",
    [
        "",
        "y",
        "x +",
        "__import__('os').system('true')",
        "x.real",
        "[x for x in x]",
        "sin(x, x)",
        "x ** 9 ** 9 ** 9",
        "1e999",
        "True",
        "x < 1",
        "Sure! Here is a program: x",
        "\0",
        "\udc80",
        "(" * 1000 + "x" + ")" * 1000,
        "+".join("x" * 100),
    ],
)
def test_texts_that_are_no_programs_are_refused(text):
    with pytest.raises(ValueError, match="program"):
        expressions.tree_of(text)
    measures, size = search_programs.curve_of(text)
    assert np.isnan(measures).all()
    assert size == 0


def test_a_large_program_says_its_size():
    with refused("a program of", "more than", 40):
        expressions.tree_of("+".join("x" * 30))


@pytest.mark.slow
def test_a_small_search_finds_programs_and_draws_them(tmp_path):
    pool = search_programs.main(iterations=20, out=tmp_path / "programs.png")
    elites = pool.elites()
    assert len(pool) > 50
    for elite in elites:
        measures, size = search_programs.curve_of(elite.values)
        np.testing.assert_allclose(measures, elite.measures, rtol=1e-5, atol=1e-6)
        targets = search_programs.curves()
        error = np.square(measures - targets[elite.cell]).mean()
        expected = 1 - error - search_programs.PER_NODE * size
        assert elite.objective == pytest.approx(expected, abs=1e-4)
    with Image.open(tmp_path / "programs.png") as picture:
        assert picture.width > 500
