"""Measure space laid on paper: as it is for up to two measures, by principal components beyond."""

from collections.abc import Callable
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from gloam.archives import Archive
from gloam.archives.measure_names import labels
from gloam.plots import style
from gloam.principal_components import PrincipalComponents

# Points along each side of a raster, and how many are sent to the device at once.
_SIDE = 300
_CHUNK = 4096


class Plane:
    """Where the points of an archive's measure space lie in a picture.

    With two measures the axes are the measures, under their names. With one, the other axis says
    nothing. With more, the axes are the first two principal components of the centres of the cells.

    Args:
        archive: The division into cells.
    """

    def __init__(self, archive: Archive):
        self.archive = archive
        self.whole = archive.measure_dim <= 2
        """True when every point of measure space is a point of the picture."""
        if self.whole:
            self.labels = (*labels(archive.measure_names, archive.measure_dim), "")[:2]
            self.lower = np.append(np.asarray(archive.lower), 0.0)[:2]
            self.upper = np.append(np.asarray(archive.upper), 1.0)[:2]
        else:
            self._components = PrincipalComponents(self.centers)
            spots = self.place(self.centers)
            self.labels = self._components.labels
            margin = 0.04 * np.ptp(spots, axis=0) + 1e-9
            self.lower, self.upper = spots.min(axis=0) - margin, spots.max(axis=0) + margin

    @cached_property
    def centers(self) -> Float[np.ndarray, "cells meas"]:
        """The centres of all cells."""
        cells = jnp.arange(self.archive.num_cells, dtype=jnp.int32)
        return np.asarray(self.archive.centers_of(cells))

    @property
    def shape(self) -> float:
        """Height of the picture for width 1: measures have one scale, unless they differ much."""
        width, height = self.upper - self.lower
        alike = self.archive.measure_dim == 2 and 0.5 <= height / width <= 2
        return float(height / width) if alike else 1.0

    @property
    def raster_shape(self) -> tuple[int, int]:
        """Rows and columns of the raster."""
        return (_SIDE if self.archive.measure_dim == 2 else 1, _SIDE)

    @cached_property
    def sites(self) -> Float[np.ndarray, "sites meas"]:
        """Where to ask for a function that is to be drawn.

        A raster over the bounds, row by row from below, when the plane is `whole`; else the
        centres of the cells.
        """
        if not self.whole:
            return self.centers
        steps = (np.arange(_SIDE) + 0.5) / _SIDE
        sides = [
            low + steps * (high - low) for low, high in zip(self.lower, self.upper, strict=True)
        ]
        if self.archive.measure_dim == 1:
            return sides[0][:, None].astype(np.float32)
        x, y = np.meshgrid(*sides)
        return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)

    @cached_property
    def cells_of_sites(self) -> Int[np.ndarray, " sites"]:
        """The cell of every site."""
        return in_chunks(eqx.filter_jit(self.archive.index_of), self.sites)

    def place(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
        """The places of points in the picture."""
        if not self.whole:
            return self._components.place(points)
        if self.archive.measure_dim == 2:
            return np.asarray(points)
        # One measure: spread over the height, so that points do not hide one another.
        return np.stack([points[:, 0], (np.arange(len(points)) * 0.618034) % 1.0], axis=1)

    def frame(self, axes: Axes) -> None:
        """Set limits, labels, shape and ticks of axes."""
        axes.set(
            xlim=(self.lower[0], self.upper[0]),
            ylim=(self.lower[1], self.upper[1]),
            xlabel=self.labels[0],
            ylabel=self.labels[1],
        )
        axes.set_aspect("auto")
        axes.set_box_aspect(self.shape)
        axes.locator_params(nbins=5)
        if not self.labels[1]:
            axes.set_yticks([])
        style.dress(axes)


def in_chunks(function: Callable, points: Float[np.ndarray, "n meas"]) -> np.ndarray:
    """A function of rows at many points, as many at a time as memory surely holds."""
    parts = np.array_split(points, -(-len(points) // _CHUNK))
    return np.concatenate([np.asarray(function(jnp.asarray(part))) for part in parts])
