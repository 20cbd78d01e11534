"""Comparisons of algorithms: one reference for all scores, from results and from run folders."""

import dataclasses
import doctest

import numpy as np
import pandas as pd
import pingouin
import pytest

import gloam
from gloam.cli import main
from gloam.runs import comparison as statistics
from gloam.runs.comparison import hedges_g
from tests.helpers import refused

pytestmark = pytest.mark.slow  # searches of its own are compiled

X0 = np.zeros(3)


def evaluate(solutions):
    return -np.square(solutions).sum(axis=1), solutions[:, :2]


def result(build, f_min, iterations=3, **options):
    archive = gloam.GridArchive((5, 5), -1, 1, f_min=f_min)
    algorithm = build(archive, X0, 0.3, batch_size=10)
    options = {"seeds": 2, "progress": False, "log_every": 1} | options
    return gloam.optimize(evaluate, algorithm, iterations, **options)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "plain": result(gloam.MAPElites, -9.0, run_dir=folder / "plain"),
        "line": result(gloam.MAPElitesLine, -50.0, run_dir=folder / "line"),
    }


def test_all_scores_have_one_reference(results):
    found = gloam.compare(results)
    assert found.f_min == -50.0
    for name, one in results.items():
        scores = found.scores.loc[found.scores["algorithm"] == name, "qd_score"]
        expected = [np.sum(e.objectives.astype(float) + 50) for e in one.elites_by_seed.values()]
        np.testing.assert_allclose(scores, expected)
        last = found.metrics[name].groupby("seed")["qd_score"].last()
        np.testing.assert_allclose(last, expected, rtol=1e-5)
    assert gloam.compare(results, f_min=-9).f_min == -9
    best = found.table()
    assert best["qd_score"].is_monotonic_decreasing
    assert best["evaluations"].tolist() == [30, 30]


def test_the_scores_of_one_reference_are_those_that_the_runs_print():
    for f_min in (None, -0.01):
        run = result(gloam.MAPElites, f_min, iterations=1)
        scores = gloam.compare({"a": run, "b": run}).scores["qd_score"].tolist()
        assert scores == 2 * [elites.qd_score for elites in run.elites_by_seed.values()]


def test_results_folders_and_lists_are_the_same(results):
    expected = gloam.compare(results)
    folders = {name: one.run_dir for name, one in results.items()}
    assert repr(gloam.compare(folders)) == repr(expected)
    listed = gloam.compare({name: [folder] for name, folder in folders.items()})
    assert repr(listed) == repr(expected)
    twice = gloam.compare({"plain": [results["plain"], folders["plain"]]})
    assert len(twice.scores) == 4
    assert "Games-Howell" not in repr(twice)


def test_the_figure_and_the_text_have_all_algorithms(results):
    found = gloam.compare(results)
    assert len(found.figure().axes) == 2
    text = repr(found)
    assert "Games-Howell" in text
    for name in results:
        assert f"| {name} |" in text


def comparison_of(**scores):
    """A comparison of algorithms with these QD scores, and equal coverages."""
    rows = [
        {
            "algorithm": name,
            "qd_score": value,
            "coverage": 0.5,
            "best_objective": n,
            "evaluations": 9_000,
        }
        for name, values in scores.items()
        for n, value in enumerate(values)
    ]
    return statistics.Comparison(pd.DataFrame(rows), {}, 0.0)


def test_the_best_is_bold_if_it_is_significantly_best():
    clear = comparison_of(good=[900.0, 901, 902], a_b=[100.0, 110, 105], c=[80.0, 120, 95])
    assert r"good & 3 & 9,000 & \textbf{901.00 $\pm$ 0.58} & 50 $\pm$ 0\%" in clear.to_latex()
    assert r"a\_b & 3 & 9,000 & 105.0 $\pm$ 2.9 &" in clear.to_latex()
    assert clear.to_latex().count("textbf") == 1
    assert "| good | 3 | 9,000 | **901.00 ± 0.58** | 50 ± 0% | 1.00 ± 0.58 |" in repr(clear)
    # The first of two that do not differ, a single seed, and an algorithm alone are not.
    equal = comparison_of(good=[900.0, 901, 902], other=[899.0, 901, 903], c=[1.0, 2, 3])
    for found in (equal, comparison_of(a=[9.0], b=[1.0]), comparison_of(a=[9.0, 8.0])):
        assert "textbf" not in found.to_latex()
        assert "**" not in found.to_markdown()
    assert "| a | 1 | 9,000 | 9 | 50% | 0 |" in repr(comparison_of(a=[9.0], b=[1.0]))


def test_p_values_of_the_text_are_those_of_the_tests():
    found = comparison_of(a=[900.0, 901, 902, 903], b=[100.0, 110, 105, 99])
    p = found.tests()["p"][0]
    assert 1e-9 < p < 1e-3
    *_, line = found.to_markdown().splitlines()
    _, first, second, difference, shown, *_ = (cell.strip() for cell in line.split("|"))
    assert (first, second) == ("a", "b")
    assert float(shown) == pytest.approx(p, rel=0.05)
    assert float(difference) == pytest.approx(798.0, rel=1e-3)


def test_runs_of_different_batches_are_drawn_over_evaluations(results):
    larger = gloam.MAPElites(gloam.GridArchive((5, 5), -1, 1), X0, 0.3, batch_size=20)
    options = {"seeds": 2, "progress": False, "log_every": 1}
    other = gloam.optimize(evaluate, larger, 2, **options)
    figure = gloam.compare({"plain": results["plain"], "larger": other}).figure()
    assert figure.axes[0].get_xlabel() == "evaluations"
    drawn = {line.get_label(): line.get_xdata().tolist() for line in figure.axes[0].lines}
    assert drawn["plain"] == [10, 20, 30]
    assert drawn["larger"] == [20, 40]
    assert gloam.compare(results).figure().axes[0].get_xlabel() == "iteration"
    (axes,) = gloam.compare(results).figure(["coverage"], over="evaluations").axes
    assert axes.get_xlabel() == "evaluations"
    assert {*axes.lines[0].get_xdata()} <= {*results["plain"].metrics["evaluations"]}
    with refused("over: expected 'iteration' or 'evaluations', got 'seconds'"):
        gloam.compare(results).figure(over="seconds")


def test_the_command_compares_folders(results, tmp_path, capsys):
    out = tmp_path / "figure.png"
    folders = [str(one.run_dir) for one in results.values()]
    main(["compare", *folders, "--f-min", "-60", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "counted from -60" in printed
    assert printed.strip().endswith(str(out))
    assert out.is_file()


def test_hedges_g_equals_pingouins():
    rng = np.random.default_rng(0)
    one, other = rng.normal(0, 1, 8), rng.normal(0.5, 2, 12)
    expected = pingouin.compute_effsize(one, other, eftype="hedges")
    assert hedges_g(one, other) == pytest.approx(expected, rel=1e-6)
    assert hedges_g(np.ones(3), np.zeros(3)) == np.inf


def test_what_is_no_run_is_refused(tmp_path):
    with refused("runs: expected at least one algorithm, got none"):
        gloam.compare({})
    with refused("runs: expected results, pools or run folders, got int"):
        gloam.compare({"a": 3})
    with refused("run folder: expected a run of gloam"):
        gloam.compare({"a": tmp_path})
    for given in ([3], "folder", None):
        with refused(f"runs: expected a dict of runs, got {type(given).__name__}"):
            gloam.compare(given)
    with refused("runs['a']: expected at least one run, got none"):
        gloam.compare({"a": []})
    with refused("name of an algorithm in runs: expected str, got int 1"):
        gloam.compare({1: tmp_path})
    with refused("metric: expected one of"):
        statistics.Comparison(None, {}, 0.0).tests("loss")


def test_the_examples_hold():
    assert doctest.testmod(statistics, extraglobs={"np": np}).failed == 0


@pytest.mark.parametrize("columns", [None, []])
def test_a_run_without_rows_is_refused(results, columns):
    table = results["plain"].metrics.iloc[:0]
    table = table if columns is None else pd.DataFrame()
    with refused("runs['plain']: expected a run with rows of metrics, got none"):
        gloam.compare({"plain": dataclasses.replace(results["plain"], metrics=table)})


def test_a_run_that_lost_columns_is_refused(results):
    table = results["plain"].metrics.drop(columns=["f_min", "evaluations"])
    with pytest.raises(ValueError, match=r"^runs\['plain'\]: .*\['evaluations', 'f_min'\]"):
        gloam.compare({"plain": dataclasses.replace(results["plain"], metrics=table)})


def test_archives_of_other_cells_do_not_compare(results, tmp_path, capsys):
    archive = gloam.GridArchive((5, 5), -1, 2, f_min=-9.0)
    algorithm = gloam.MAPElites(archive, X0, 0.3, batch_size=10)
    folder = tmp_path / "other"
    options = {"seeds": 2, "progress": False, "run_dir": folder}
    other = gloam.optimize(evaluate, algorithm, 1, **options)
    with refused("runs: expected archives with the same cells, got 'plain' with GridArchive"):
        gloam.compare(results | {"other": other})
    with refused("runs: expected archives with the same cells"):
        gloam.compare({"one": [results["plain"], other]})
    with pytest.raises(SystemExit):
        main(["compare", str(results["plain"].run_dir), str(folder)])
    assert "same cells" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x.zzz", "x.svg"])
def test_a_figure_of_an_unknown_kind_is_refused_before_runs_are_read(name, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["compare", "nowhere", "--out", str(tmp_path / name)])
    assert "out: expected a name that ends in .png or .pdf" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("odd", [np.array(3.0), np.zeros((2, 2)), np.zeros(3, "datetime64[s]")])
def test_hedges_g_takes_vectors_of_numbers(odd):
    with pytest.raises(ValueError, match=r"^other:"):
        hedges_g(np.arange(3.0), odd)
