"""Two measures of a grid that has more: a slice at values of the others, or the best over them."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from gloam._tools import checks
from gloam.archives import Archive, GridArchive
from gloam.archives.archive import measure_labels
from gloam.plots.plane import CellValues, Color, Filled, cell_values

Measure = int | str
"""Number of a measure, from 0, or its name."""
At = Mapping[int, float] | Mapping[str, float] | Mapping[Measure, float]
"""Values of measures."""

# Grids of more measures have few cells along each, and are drawn by principal components.
_MAX_MEASURES = 4


class GridView:
    """The places that two measures of a grid span, each with some of the grid's cells.

    Args:
        archive: A grid of two or more measures.
        measures: The measures along the two axes; by default the first two that are not in ``at``.
        at: Values of other measures, which select a slice of the grid. Of the cells that remain at
            a place, the best is shown.
    """

    def __init__(
        self,
        archive: GridArchive,
        measures: Sequence[Measure] | None = None,
        at: At | None = None,
    ):
        labels = measure_labels(archive.measure_names, archive.measure_dim)
        fixed = {
            _index(labels, measure): _cell_along(archive, _index(labels, measure), value)
            for measure, value in (at or {}).items()
        }
        free = [k for k in range(archive.measure_dim) if k not in fixed]
        pair = free[:2] if measures is None else [_index(labels, measure) for measure in measures]
        is_pair = len(set(pair)) == len(pair) == 2 and set(pair) <= set(free)
        expected = "two different measures that are not in at"
        checks.expect(is_pair, "measures", expected, checks.short([labels[k] for k in pair]))
        self.pair = (pair[0], pair[1])
        """The measures along the axes."""
        lower, upper = np.asarray(archive.lower), np.asarray(archive.upper)
        self.archive = GridArchive(
            [archive.shape[k] for k in pair],
            lower[pair].tolist(),
            upper[pair].tolist(),
            f_min=archive.f_min,
            measure_names=[labels[k] for k in pair],
        )
        """A grid of the two measures."""
        hidden = [k for k in free if k not in pair]
        sides = (upper - lower) / archive.shape
        notes = [
            f"{labels[k]} {lower[k] + n * sides[k]:.3g} to {lower[k] + (n + 1) * sides[k]:.3g}"
            for k, n in fixed.items()
        ]
        over = " and ".join(labels[k] for k in hidden)
        self.note = ", ".join(notes + [f"best over {over}"] * bool(hidden))
        """What is shown of the other measures."""
        cells = np.arange(archive.num_cells).reshape(archive.shape)
        cells = cells[tuple(fixed.get(k, slice(None)) for k in range(archive.measure_dim))]
        cells = cells.transpose([free.index(k) for k in (*pair, *hidden)])
        self._cells = cells.reshape(self.archive.num_cells, -1)

    def best(
        self, shown: CellValues, objectives: Float[np.ndarray, " cells"] | None = None
    ) -> CellValues:
        """Return the value of the best cell at each place, by default the one with the highest."""
        order = shown.values if objectives is None else objectives
        best: Int[np.ndarray, "places 1"] = order[self._cells].argmax(axis=1)[:, None]
        cells = np.take_along_axis(self._cells, best, axis=1)[:, 0]
        return CellValues(self.archive, shown.values[cells], shown.name)


def view_of(
    archive: Archive, measures: Sequence[Measure] | None = None, at: At | None = None
) -> GridView | None:
    """Return the view of a grid, or ``None`` if an archive is drawn as it is.

    Without ``measures`` and ``at``, only grids of three or four measures have one.
    """
    is_grid = isinstance(archive, GridArchive)
    if measures is None and not at and not (is_grid and 2 < archive.measure_dim <= _MAX_MEASURES):
        return None
    fix = "For other archives, gloam.plots.pairwise draws pairs of measures."
    got = f"a {type(archive).__name__} of {archive.measure_dim}"
    fits = is_grid and archive.measure_dim > 1
    checks.expect(fits, "measures, at", "a grid of two or more measures", got, fix)
    return GridView(cast(GridArchive, archive), measures, at)


def viewed_values(
    elites: Filled, color: Color, measures: Sequence[Measure] | None, at: At | None
) -> tuple[CellValues, str]:
    """Return what a heatmap shows, and a note on the measures that are not on its axes."""
    shown = cell_values(elites, color)
    view = view_of(shown.archive, measures, at)
    if view is None:
        return shown, ""
    return view.best(shown, cell_values(elites).values), view.note


def _index(labels: Sequence[str], measure: Measure) -> int:
    """Return the number of a measure."""
    if measure in labels:
        return labels.index(str(measure))
    is_number = isinstance(measure, int) or measure.isdecimal()
    expected = f"one of {list(labels)}, or a number from 0 to {len(labels) - 1}"
    fits = is_number and 0 <= int(measure) < len(labels)
    checks.expect(fits, "measures, at", expected, repr(measure))
    return int(measure)


def _cell_along(archive: GridArchive, measure: int, value: float) -> int:
    """Return the number of the cell, along one measure, that contains a value."""
    low, high = float(archive.lower[measure]), float(archive.upper[measure])
    value = float(np.float32(checks.number("at", value)))  # as the bounds
    expected = f"a value from {low:.6g} to {high:.6g}"
    checks.expect(low <= value <= high, "at", expected, value)
    number = archive.shape[measure]
    return min(int((value - low) / (high - low) * number), number - 1)
