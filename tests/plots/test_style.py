"""What all figures have in common: where they draw, colors, saving."""

import struct
import sys

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from gloam import plots
from gloam.plots import line_colors, save, style


def png_size(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def every_plot(plane, four, metrics):
    """Each function of one data argument, ready to be called."""
    return {
        "heatmap": lambda **o: plots.heatmap(plane, **o),
        "archive_figure": lambda **o: plots.archive_figure(plane, **o),
        "projection_map": lambda **o: plots.projection_map(four, **o),
        "parallel_axes": lambda **o: plots.parallel_axes(four, **o),
        "pairwise": lambda **o: plots.pairwise(four, **o),
        "curves": lambda **o: plots.curves(metrics, **o),
        "unique_cells": lambda **o: plots.unique_cells(metrics, **o),
        "objective_ecdf": lambda **o: plots.objective_ecdf(plane, **o),
        "comparison": lambda **o: plots.comparison(plane, plane, **o),
    }


@pytest.mark.slow
def test_every_plot_draws_into_axes_that_are_given_and_nowhere_else(plane, four, metrics):
    settings, loaded = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    for name, plot in every_plot(plane, four, metrics).items():
        figure = Figure(figsize=(6, 3), layout="constrained")
        left, right = figure.subplots(1, 2)
        assert plot(ax=left) is figure, name
        assert not right.has_data(), name
        inside = [left, *left.child_axes]
        assert any(axes.has_data() for axes in inside), name
        figure.draw_without_rendering()
        alone = plot(title="A heading")
        alone.draw_without_rendering()
        titles = [axes.get_title(loc="left") for axes in alone.axes]
        titles += [alone._suptitle.get_text()] if alone._suptitle else []
        assert "A heading" in titles, name
    assert dict(matplotlib.rcParams) == settings
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_a_figure_shows_itself_in_notebooks(plane):
    assert plots.heatmap(plane)._repr_png_()[:4] == b"\x89PNG"


def test_colors_are_distinct_and_belong_to_names():
    labels = ["CMAMAE", "one", "DDS", "two", "MAPElitesLine", "three", "DMS"]
    colors = line_colors(labels)
    assert list(colors) == labels
    assert len(set(colors.values())) == len(labels)
    assert colors["CMAMAE"] == line_colors(["CMA-MAE"])["CMA-MAE"]
    assert len(line_colors([f"run {i}" for i in range(30)])) == 30


NAMES = ["CMAMAE", "one", "DDS", "two", "MAPElitesLine", "three", "DMS", "a", "random search"]


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.randoms())
def test_the_color_of_a_name_does_not_depend_on_order_or_on_algorithms(chosen, random):
    ordered = sorted(chosen)
    random.shuffle(ordered)
    colors = line_colors(ordered)
    assert list(colors) == ordered
    assert len(set(colors.values())) == len(ordered)
    assert colors == line_colors(sorted(chosen))
    # The algorithms of gloam never change, and take no color of others.
    others = [
        name for name in ordered if name.lower() in ("one", "two", "three", "a", "random search")
    ]
    assert {name: colors[name] for name in others} == line_colors(others)
    for name in set(ordered) - set(others):
        assert colors[name] == line_colors([name])[name]


def test_a_figure_is_saved_under_its_name(tmp_path):
    figure = style.figure(2, 1)
    assert save(figure, tmp_path / "deep" / "alpha0.5") == tmp_path / "deep" / "alpha0.5.png"
    assert png_size(tmp_path / "deep" / "alpha0.5.png") == (300, 150)
    assert save(figure, str(tmp_path / "b.png"), pdf=True) == tmp_path / "b.png"
    first = (tmp_path / "b.pdf").read_bytes()
    assert len(first) > 500
    # The same figure gives the same file: no dates in it.
    save(figure, tmp_path / "b.png", pdf=True)
    assert (tmp_path / "b.pdf").read_bytes() == first


def test_a_figure_is_written_in_the_form_of_its_name(tmp_path):
    figure = style.figure(2, 1)
    assert save(figure, tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF"
    for name in ("a.zzz", "a.svg", "a.PNG"):
        with pytest.raises(ValueError, match=r"^path:"):
            save(figure, tmp_path / name)
    with pytest.raises(ValueError, match=r"^path:"):
        save(figure, "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]
