"""Curves show means over seeds, standard errors and distributions."""

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam import plots
from gloam.plots import curves, line_colors
from tests.plots.conftest import filled


def test_curves_are_the_mean_over_seeds(run_2d):
    metrics = run_2d.read_metrics()
    figure = curves(metrics, algorithm="DMS")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == [
        "QD score",
        "coverage of the archive",
        "training loss",
        "unique cells per batch",
    ]
    columns = ["qd_score", "coverage", "loss", "unique_cells"]
    for axes, name in zip(figure.axes, columns, strict=True):
        mean, *single = axes.lines
        table = metrics.pivot(index="iteration", columns="seed", values=name)
        assert mean.get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose(mean.get_ydata(), table.mean(axis=1))
        assert len(single) == 2
        for line, seed in zip(single, [3, 4], strict=True):
            np.testing.assert_array_equal(line.get_ydata(), table[seed])
        # The standard error of two numbers is half their distance.
        band = axes.collections[0].get_paths()[0].vertices
        half = (table[3] - table[4]).abs() / 2
        assert band[:, 1].max() == pytest.approx((table.mean(axis=1) + half).max())


def test_many_seeds_have_no_lines_of_their_own():
    table = pd.DataFrame({"seed": range(6), "iteration": 10, "qd_score": np.arange(6.0)})
    (axes,) = curves(table).axes
    assert len(axes.lines) == 1
    assert axes.lines[0].get_ydata().tolist() == [2.5]


def test_a_gap_in_the_metrics_stays_a_gap():
    table = pd.DataFrame({"seed": 1, "iteration": [1, 2, 3], "loss": [0.5, np.nan, 0.25]})
    (axes,) = curves(table).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.5, np.nan, 0.25])


def test_runs_are_compared_in_the_colors_of_their_algorithms(run_2d, run_3d):
    nothing_trained = run_3d.read_metrics().assign(loss=np.nan)
    figure = curves({"MAP-Elites": nothing_trained, "DMS": run_2d.read_metrics()})
    colors = line_colors(["DMS", "MAP-Elites"])
    score, _, loss, _ = figure.axes
    assert [line.get_label() for line in score.lines if line.get_linewidth() > 1] == [
        "MAP-Elites",
        "DMS",
    ]
    assert score.lines[0].get_color() == colors["MAP-Elites"]
    assert {line.get_color() for line in loss.lines} == {colors["DMS"]}
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["MAP-Elites", "DMS", "standard error", "single seeds"]


@pytest.mark.parametrize(
    "metrics",
    [pd.DataFrame(), {}, {"a": pd.DataFrame()}, pd.DataFrame({"seed": [1], "iteration": [1]})],
)
def test_metrics_without_anything_to_draw_are_refused(metrics):
    with pytest.raises(ValueError, match=r"metrics.*expected .* got"):
        curves(metrics)


def test_unique_cells_are_drawn_below_the_size_of_the_batch(metrics):
    axes = plots.unique_cells(metrics).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [6, 10]
    assert "batch of 20" in [text.get_text() for text in axes.texts]
    assert axes.get_ylim()[1] > 20


def test_other_columns_of_the_metrics_can_be_drawn(metrics):
    table = metrics.assign(restarts=[0, 0, 1, 3])
    figure = plots.curves(table, columns=["restarts", "qd_score"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["restarts", "QD score"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"^metrics:.*'nothing'"):
        plots.curves(table, columns=["nothing"])


def test_the_distribution_of_objectives_worked_by_hand():
    archive = gloam.GridArchive((5,), 0, 1)
    elites = filled(archive, [0.5, -np.inf, 0.25, 0.5, 1.0])
    (line,) = plots.objective_ecdf(elites).axes[0].lines
    share = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))  # the last of equal ones
    assert share == {0.25: 0.25, 0.5: 0.75, 1.0: 1.0}
    (line,) = plots.objective_ecdf(elites, of="cells").axes[0].lines
    x, y = line.get_data()
    assert x.tolist() == [0.25, 0.5, 0.5, 1.0, 1.0]
    np.testing.assert_allclose(y, [0.8, 0.6, 0.4, 0.2, 0.0])
    nothing = filled(archive, [-np.inf] * 5)
    with pytest.raises(ValueError, match=r"^elites b:.*none"):
        plots.objective_ecdf({"a": elites, "b": nothing})
