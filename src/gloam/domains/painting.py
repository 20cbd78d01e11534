"""Painted triangles: from the numbers of solutions to polygons, pixels and SVG.

A canvas is a grid of points, rows by columns. The corners of triangles lie on these points, and
pixels are samples there; so a larger picture of the same triangles is a finer grid over the same
extent. A place is written (row, column).
"""

from functools import partial, reduce
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
