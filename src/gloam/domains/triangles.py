"""Painted triangles: from the numbers of solutions to polygons, pixels and SVG.

A canvas is a grid of points, rows by columns. The corners of triangles lie on these points, and
pixels are samples there; so a larger picture of the same triangles is a finer grid over the same
extent. A place is written (row, column).

Triangle arrangement: paint the images of a dataset with a few see-through triangles.
"""

import math
import os
from functools import partial, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam import checks, files
from gloam.archives import Archive, CVTArchive
from gloam.domains.domain import Domain

_OPACITY = 0.5
# One part in a million: see `arrange`.
_SLACK = 1 + 1e-6


class Painting(eqx.Module):
    """Triangles in the order of painting, for each of a batch of pictures."""

    corners: Float[Array, "batch triangles 3 2"]
    """(row, column) of each corner: whole numbers, as floats."""
    colors: Float[Array, "batch triangles channels"]
    """Brightness, or red, green and blue, from 0 to 1."""
    opacities: Float[Array, "batch triangles"]
    """From 0, invisible, to 0.5."""


@partial(jax.jit, static_argnames=("triangles", "canvas"))
def arrange(
    solutions: Float[Array, "batch sol"], triangles: int, canvas: tuple[int, int]
) -> Painting:
    """The triangles that solutions stand for.

    A solution lists, triangle after triangle, three corners (row, column), one or three colours,
    and the opacity. Each of these features is scaled to [0, 1] by its least and largest value among
    the triangles of the solution. A feature that is the same in all of them becomes 0.
    """
    # The spread of the largest float32s would be infinite; that of their sixteenths is finite, and
    # its reciprocal is not yet so small that processors take it for zero.
    features = solutions.reshape(solutions.shape[0], triangles, -1) / 16
    least, largest = jnp.min(features, 1, keepdims=True), jnp.max(features, 1, keepdims=True)
    spread = largest - least
    flat = spread == 0
    shares = jnp.where(flat, 0.0, (features - least) / jnp.where(flat, 1.0, spread))

    # XLA divides by multiplying with the reciprocal, so the largest share may be 1 - 6e-8. With no
    # slack nearly a quarter of all largest corners would be cut down to the point before the last.
    extent = jnp.asarray([(side - 1) * _SLACK for side in canvas], jnp.float32)
    corners = jnp.floor(shares[..., :6].reshape(*shares.shape[:2], 3, 2) * extent)
    return Painting(corners, shares[..., 6:-1], _OPACITY * shares[..., -1])


class _Edge(NamedTuple):
    """The cross product of an edge with the way from its start to a point, affine in the point."""

    by_row: Array
    by_column: Array
    constant: Array

    def products(
        self, row: Float[Array, " rows"], column: Float[Array, " columns"]
    ) -> Float[Array, "batch rows columns"]:
        """The cross product at every point, for one triangle of each picture."""
        along_rows = self.by_row[:, None] * row + self.constant[:, None]
        return along_rows[:, :, None] + self.by_column[:, None, None] * column


def _edge(here: Float[Array, "2 *any"], there: Float[Array, "2 *any"]) -> _Edge:
    down, across = there - here
    return _Edge(across, -down, down * here[1] - across * here[0])


@partial(jax.jit, static_argnames=("canvas", "size"))
def pixels(
    painting: Painting, canvas: tuple[int, int], size: tuple[int, int] | None = None
) -> Float[Array, "batch rows columns channels"]:
    """Paint on black: every triangle in turn covers what is below it by its opacity.

    A point is inside a triangle when the cross products of the three edges with the way to the
    point have one sign, or are zero. So edges belong to their triangle, a triangle flattened to a
    line is the whole line across the canvas, and one shrunk to a point covers everything.

    Args:
        painting: The triangles.
        canvas: Points of the grid that the corners lie on.
        size: Points of the picture, spread evenly over the same extent; by default the canvas.
    """
    row, column = (_samples(*sides) for sides in zip(canvas, size or canvas, strict=True))
    # Arrays are (triangles, batch) from here, for the loop takes one triangle of every picture.
    corners = painting.corners.transpose(2, 3, 1, 0)
    edges = [_edge(corners[k], corners[(k + 1) % 3]) for k in range(3)]
    # The three cross products add up to the same number at every point, twice the signed area.
    # With the sign turned so that it is not negative, "one sign" means "none is negative"; also
    # where the area is zero, for there products that are not negative are all zero.
    area = sum(edge.constant for edge in edges)
    sign = jnp.where(area < 0, -1.0, 1.0)
    edges = jax.tree.map(lambda part: sign * part, edges)

    def paint(picture: Array, triangle: tuple[list[_Edge], Array, Array]) -> tuple[Array, None]:
        edges, opacity, color = triangle
        inside = reduce(jnp.minimum, [edge.products(row, column) for edge in edges]) >= 0
        opacity, color = opacity[:, None, None, None], color[:, :, None, None]
        painted = picture * (1 - opacity) + opacity * color
        return jnp.where(inside[:, None], painted, picture), None

    # Colours come before rows: the innermost loop is then over pixels in a line, and is vectorised.
    batch, _, channels = painting.colors.shape
    black = jnp.zeros((batch, channels, row.shape[0], column.shape[0]), jnp.float32)
    triangles = (edges, painting.opacities.T, painting.colors.swapaxes(0, 1))
    pictures, _ = jax.lax.scan(paint, black, triangles)
    return jnp.moveaxis(pictures, 1, -1)


def _samples(side: int, count: int) -> Float[Array, " count"]:
    """``count`` evenly spread places from the first to the last of ``side`` points."""
    # Multiplied first: a sample that falls on a point is exactly there, and so are tests on edges.
    return jnp.asarray(np.arange(count) * (side - 1) / max(count - 1, 1), jnp.float32)


def svg(painting: Painting, canvas: tuple[int, int]) -> str:
    """The first picture as an SVG document; x is the column and y the row, in canvas units.

    Triangles shrunk to a point cover the canvas, as in `pixels`. Those flattened to a line have no
    area and cannot be seen.
    """
    height, width = canvas[0] - 1, canvas[1] - 1
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="#000000"/>',
    ]
    everything = [(0, 0), (0, width), (height, width), (height, 0)]
    corners, colors, opacities = (
        np.asarray(part[0]) for part in (painting.corners, painting.colors, painting.opacities)
    )
    for triangle, color, opacity in zip(corners, colors, opacities, strict=True):
        shrunk = bool((triangle == triangle[0]).all())
        points = " ".join(f"{x:g},{y:g}" for y, x in (everything if shrunk else triangle))
        levels = np.rint(255 * np.broadcast_to(color, 3)).astype(int)
        fill = "#" + "".join(f"{level:02x}" for level in levels)
        lines.append(f'<polygon points="{points}" fill="{fill}" fill-opacity="{opacity:.4f}"/>')
    return "\n".join([*lines, "</svg>", ""])


# Cross products up to here are whole numbers that float32 holds exactly.
_LARGEST_SIDE = 2048


class Triangles(Domain):
    """Triangle arrangement (TA): the measures are the pixels, the cells are images of a dataset.

    The objective is 1 minus the mean squared error between the picture and the nearest image. How
    a solution becomes a picture: `arrange` and `pixels`.

    Args:
        centroids: ``(cells, rows, columns)`` images with values from 0 to 1, in colour with a last
            axis of red, green and blue, or the path of a ``.npy`` file with them. Images may also
            be flat, ``(cells, pixels)``, row by row.
        num_triangles: Number of triangles; each takes 8 numbers of a solution, 10 in colour.
        canvas: Rows and columns of the images.
        color: Paint in red, green and blue, not in grey.
        x0: Where searches start. By default numbers drawn evenly from [0, 1) with ``seed``, and in
            `gloam.run` others for each of its seeds, as in the paper: see `x0_of`.
        seed: Of the draws of ``x0``.
        name: Short name of the problem, as in tables and file names.

    Example:
        >>> domain = Triangles(np.zeros((1, 4)), num_triangles=2, canvas=(2, 2))
        >>> white = [0, 0, 0, 0, 0, 0, 1, 1]  # shrunk to a point: covers everything, half opaque
        >>> domain(jnp.asarray([[0.0] * 8 + white])).tolist()
        [[0.5, 0.5, 0.5, 0.5]]
    """

    num_triangles: int = eqx.field(static=True)
    canvas: tuple[int, int] = eqx.field(static=True)
    color: bool = eqx.field(static=True)
    label: str = eqx.field(static=True)
    start: Float[Array, " sol"]
    start_seed: int | None
    """Seed of the draws; ``None`` where ``x0`` was given."""
    images: CVTArchive

    def __init__(
        self,
        centroids: Any,
        *,
        num_triangles: int = 30,
        canvas: tuple[int, int] = (28, 28),
        color: bool = False,
        x0: Any = None,
        seed: int = 0,
        name: str = "triangles",
    ):
        self.num_triangles = checks.integer("num_triangles", num_triangles, minimum=1)
        self.canvas = _sides("canvas", canvas, minimum=2)
        checks.instance("color", color, bool)
        self.color = color
        checks.instance("name", name, str)
        self.label = name
        self.images = CVTArchive(_images(centroids, self.canvas, color), 0.0, 1.0, index="exact")
        seed = checks.seed("seed", seed)
        self.start_seed = seed if x0 is None else None
        if x0 is None:
            x0 = np.random.default_rng(seed).random(self.solution_dim)
        x0 = checks.finite_array("x0", x0, ndim=1)
        checks.expect(x0.size == self.solution_dim, "x0", self._numbers, f"{x0.size} numbers")
        self.start = jnp.asarray(x0, jnp.float32)

    @property
    def name(self) -> str:
        """As given, or ``triangles``."""
        return self.label

    @property
    def solution_dim(self) -> int:
        """Numbers in a solution."""
        return self.num_triangles * (10 if self.color else 8)

    @property
    def x0(self) -> Float[Array, " sol"]:
        """As given, or drawn."""
        return self.start

    def x0_of(self, seed: int) -> Float[Array | np.ndarray, " sol"]:
        """As given, or drawn for each seed of a search, whatever other seeds there are."""
        if self.start_seed is None:
            return self.start
        drawn = np.random.default_rng([seed, self.start_seed]).random(self.solution_dim)
        return drawn.astype(np.float32)

    @property
    def _numbers(self) -> str:
        each = self.solution_dim // self.num_triangles
        return f"{self.solution_dim} numbers ({self.num_triangles} triangles of {each})"

    def __call__(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch meas"]:
        """Measures of solutions; the objective is the archive's ``closeness`` to them.

        Measures alone, so that the nearest image is looked for once in an iteration, not twice.
        """
        pictures = pixels(self._arrange(solutions, ndim=2), self.canvas)
        # Triangles of a solution that is not finite are merely not painted: it must fail, though.
        broken = ~jnp.all(jnp.isfinite(solutions), axis=1, keepdims=True)
        return jnp.where(broken, jnp.nan, pictures.reshape(solutions.shape[0], -1))

    def archive(self) -> Archive:
        """A cell for every image, the nearest by Euclidean distance."""
        return self.images

    def render(
        self,
        solutions: Float[Array, "*batch sol"],
        size: int | tuple[int, int] | None = None,
    ) -> Float[Array, "*picture"]:
        """Pictures of one solution or of a batch, with a last axis of colours if there are any.

        Args:
            solutions: ``(sol,)`` or ``(batch, sol)``.
            size: Rows and columns of a picture, or the longer of the two; by default those of the
                canvas. The paper's pictures are of size 280.
        """
        rows, columns = _size(size, self.canvas)
        one = jnp.ndim(solutions) == 1
        scene = self._arrange(solutions, ndim=1 if one else 2)
        pictures = pixels(scene, self.canvas, (rows, columns))
        pictures = pictures if self.color else pictures[..., 0]
        return pictures[0] if one else pictures

    def svg(self, solution: Float[Array, " sol"]) -> str:
        """One solution as the text of an SVG file."""
        return svg(self._arrange(solution, ndim=1), self.canvas)

    def _arrange(self, solutions: Any, ndim: int) -> Painting:
        shape = jnp.shape(solutions)
        axes = "one solution" if ndim == 1 else "rows"
        checks.expect(
            len(shape) == ndim and shape[-1] == self.solution_dim,
            "solutions",
            f"{axes} of {self._numbers}",
            f"shape {shape}",
        )
        rows = jnp.atleast_2d(jnp.asarray(solutions, jnp.float32))
        return arrange(rows, self.num_triangles, self.canvas)


def _images(centroids: Any, canvas: tuple[int, int], color: bool) -> np.ndarray:
    """The dataset as ``(cells, rows, columns[, 3])``, checked against the canvas."""
    if isinstance(centroids, (str, os.PathLike)):
        path = checks.existing_file("centroids", centroids, "Give an array or a .npy file.")
        centroids = files.read_array(path, "centroids")
    images = checks.finite_array(
        "centroids", centroids, ndim=2, or_more=True, fix="Give an image for each cell."
    )
    shape = (*canvas, 3) if color else canvas
    pixels = math.prod(shape)
    each = " x ".join(str(size) for size in shape)
    fits = images.shape[1:] in (shape, (pixels,))
    checks.expect(
        fits,
        "centroids",
        f"images of {each}, or rows of {pixels} pixels",
        f"shape {images.shape}",
        "Set canvas and color to those of the images.",
    )
    low, high = float(images.min()), float(images.max())
    checks.expect(
        low >= 0 and high <= 1,
        "centroids",
        "pixels from 0 to 1",
        f"{low:g} to {high:g}",
        "Divide bytes by 255.",
    )
    return images.reshape(-1, *shape)


def _sides(name: str, value: Any, minimum: int) -> tuple[int, int]:
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    checks.expect(pair, name, "(rows, columns)", repr(value))
    rows, columns = (checks.integer(name, side, minimum=minimum) for side in value)
    checks.expect(
        max(rows, columns) <= _LARGEST_SIDE,
        name,
        f"at most {_LARGEST_SIDE} rows and columns",
        repr(value),
    )
    return rows, columns


def _size(size: Any, canvas: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a picture; a single number is the longer side, and keeps the shape."""
    if size is None:
        return canvas
    if isinstance(size, (tuple, list)):
        return _sides("size", size, minimum=1)
    longer = checks.integer("size", size, minimum=1)
    rows, columns = (max(1, round(side * longer / max(canvas))) for side in canvas)
    return rows, columns
