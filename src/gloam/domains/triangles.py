"""Triangle arrangement (TA): paint the images of a dataset with a few translucent triangles.

A canvas is a grid of points, written (row, column). The corners of triangles lie on these points,
and pixels are samples there. A larger picture of the same triangles is a finer grid over the same
extent.
"""

import math
import os
from functools import partial, reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks, files
from gloam._tools.registry import register
from gloam.archives import Archive, CVTArchive
from gloam.domains.domain import Domain, check_pixels, starting_solution

Edge = tuple[Array, Array, Array]
_OPACITY = 0.5
# One part in a million: see `arrange`.
_SLACK = 1 + 1e-6
# Up to this size, cross products are integers that float32 represents exactly.
_LARGEST_SIDE = 2048


@register(
    values={
        "centroids": lambda domain: domain.images.shaped_centroids,
        "x0": lambda domain: domain.start if domain.start_seed is None else None,
        "seed": lambda domain: domain.start_seed or 0,
    }
)
class Triangles(Domain):
    """Triangle arrangement (TA): the measures are the pixels, the cells are images of a dataset.

    The objective is 1 minus the mean squared error between the picture and the nearest image.
    `arrange` and `pixels` define the picture of a solution.

    Args:
        centroids: ``(cells, rows, columns)`` images with values from 0 to 1, with a last axis of
            red, green and blue if ``color`` is set, or the path of a ``.npy`` file. Images may also
            be flat, ``(cells, pixels)``, row by row.
        num_triangles: Number of triangles. Each takes 8 numbers of a solution, 10 in color.
        canvas: Rows and columns of the images.
        color: Whether to paint in red, green and blue instead of gray.
        x0: Starting solution. By default uniform random numbers in [0, 1), and in `gloam.run`
            different ones for each seed, as in the paper: see `x0_of`.
        seed: Seed of the default ``x0``.
        name: Short name of the problem, used in tables and file names.

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
    """Seed of the default ``x0``; ``None`` if ``x0`` was given."""
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
        self.num_triangles = checks.count("num_triangles", num_triangles)
        self.canvas = _sides("canvas", canvas, minimum=2)
        checks.instance("color", color, bool)
        checks.instance("name", name, str)
        self.color, self.label = color, name
        images = _images(centroids, self.canvas, color)
        self.images = CVTArchive(images, 0.0, 1.0, index="exact", f_min=0.0)
        seed = checks.seed("seed", seed)
        self.start_seed = seed if x0 is None else None
        if x0 is None:
            x0 = np.random.default_rng(seed).random(self.solution_dim)
        self.start = starting_solution(x0, self.solution_dim)

    @property
    def name(self) -> str:
        """The given name; ``triangles`` by default."""
        return self.label

    @property
    def solution_dim(self) -> int:
        """Dimension of a solution."""
        return self.num_triangles * (10 if self.color else 8)

    @property
    def x0(self) -> Float[Array, " sol"]:
        """The given starting solution; random by default."""
        return self.start

    def x0_of(self, seed: int) -> Float[Array | np.ndarray, " sol"]:
        """Return the starting solution of a seed: as given, or random and independent of others."""
        if self.start_seed is None:
            return self.start
        drawn = np.random.default_rng([seed, self.start_seed]).random(self.solution_dim)
        return drawn.astype(np.float32)

    def __call__(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch meas"]:
        """Return the measures of solutions; the objective is the archive's ``closeness``.

        Only measures are returned, so that an iteration searches the nearest image once.
        """
        pictures = pixels(self._arrange(solutions, ndim=2), self.canvas)
        # A solution that is not finite must fail, although its triangles could be left out.
        broken = ~jnp.all(jnp.isfinite(solutions), axis=1, keepdims=True)
        return jnp.where(broken, jnp.nan, pictures.reshape(solutions.shape[0], -1))

    def archive(self) -> Archive:
        """Return an archive with a cell for every image, by Euclidean distance."""
        return self.images

    def render(
        self, solutions: Float[Array, "*batch sol"], size: int | tuple[int, int] | None = None
    ) -> Float[Array, "*picture"]:
        """Return the pictures of one solution or a batch, in color with a last axis of channels.

        Args:
            solutions: ``(sol,)`` or ``(batch, sol)``.
            size: Rows and columns of a picture, or the larger of the two; by default those of the
                canvas. Pictures in the paper have size 280.
        """
        if size is None:
            size = self.canvas
        elif isinstance(size, (tuple, list)):
            size = _sides("size", size, minimum=1)
        else:
            longer, canvas = checks.integer("size", size, minimum=1), self.canvas
            rows, columns = (max(1, round(side * longer / max(canvas))) for side in canvas)
            size = (rows, columns)
        ndim = 1 if jnp.ndim(solutions) == 1 else 2
        pictures = pixels(self._arrange(solutions, ndim), self.canvas, size)
        pictures = pictures if self.color else pictures[..., 0]
        return pictures[0] if ndim == 1 else pictures

    def _arrange(self, solutions: Any, ndim: int) -> "Painting":
        shape, each = jnp.shape(solutions), self.solution_dim // self.num_triangles
        expected = "one solution" if ndim == 1 else "rows"
        expected += f" of {self.solution_dim} numbers ({self.num_triangles} triangles of {each})"
        fits = len(shape) == ndim and shape[-1] == self.solution_dim
        checks.expect(fits, "solutions", expected, f"shape {shape}")
        rows = jnp.atleast_2d(jnp.asarray(solutions, jnp.float32))
        return arrange(rows, self.num_triangles, self.canvas)


def _images(centroids: Any, canvas: tuple[int, int], color: bool) -> np.ndarray:
    """Return the dataset as ``(cells, rows, columns[, 3])``, after checking it."""
    if isinstance(centroids, (str, os.PathLike)):
        path = checks.existing_file("centroids", centroids, "Pass an array or a .npy file.")
        centroids = files.read_array(path, "centroids")
    fix = "Pass one image for each cell."
    images = checks.finite_array("centroids", centroids, ndim=2, or_more=True, fix=fix)
    shape = (*canvas, 3) if color else canvas
    count, sides = math.prod(shape), " x ".join(str(size) for size in shape)
    fits = images.shape[1:] in (shape, (count,))
    expected = f"images of {sides}, or rows of {count} pixels"
    fix = "Set canvas and color to match the images."
    checks.expect(fits, "centroids", expected, f"shape {images.shape}", fix)
    check_pixels(images)
    return images.reshape(-1, *shape)


def _sides(name: str, value: Any, minimum: int) -> tuple[int, int]:
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    checks.expect(is_pair, name, "(rows, columns)", repr(value))
    rows, columns = (checks.count(name, side, minimum=minimum, maximum=10_000) for side in value)
    expected = f"at most {_LARGEST_SIDE} rows and columns"
    checks.expect(max(rows, columns) <= _LARGEST_SIDE, name, expected, repr(value))
    return rows, columns


class Painting(eqx.Module):
    """Triangles in the order of painting, for each of a batch of pictures."""

    corners: Float[Array, "batch triangles 3 2"]
    """(row, column) of each corner: integers, stored as floats."""
    colors: Float[Array, "batch triangles channels"]
    """Brightness, or red, green and blue, from 0 to 1."""
    opacities: Float[Array, "batch triangles"]
    """From 0, invisible, to 0.5."""


@partial(jax.jit, static_argnames=("triangles", "canvas"))
def arrange(
    solutions: Float[Array, "batch sol"], triangles: int, canvas: tuple[int, int]
) -> Painting:
    """Return the triangles of solutions.

    A solution lists for each triangle three corners (row, column), one or three colors, and the
    opacity. Each of these features is scaled to [0, 1] by its minimum and maximum over the
    triangles of the solution. A feature with the same value in all triangles becomes 0.
    """
    # The range of the largest float32s would overflow. That of their sixteenths does not, and its
    # reciprocal is not a denormal number, which processors may flush to zero.
    features = solutions.reshape(solutions.shape[0], triangles, -1) / 16
    least, largest = jnp.min(features, 1, keepdims=True), jnp.max(features, 1, keepdims=True)
    spread = largest - least
    is_flat = spread == 0
    shares = jnp.where(is_flat, 0.0, (features - least) / jnp.where(is_flat, 1.0, spread))

    # XLA divides by multiplying with the reciprocal, so the largest share may be 1 - 6e-8. Without
    # slack, nearly a quarter of the largest corners would be rounded down to the point before.
    extent = jnp.asarray([(side - 1) * _SLACK for side in canvas], jnp.float32)
    corners = jnp.floor(shares[..., :6].reshape(*shares.shape[:2], 3, 2) * extent)
    return Painting(corners, shares[..., 6:-1], _OPACITY * shares[..., -1])


@partial(jax.jit, static_argnames=("canvas", "size"))
def pixels(
    painting: Painting, canvas: tuple[int, int], size: tuple[int, int] | None = None
) -> Float[Array, "batch rows columns channels"]:
    """Paint triangles in order on black, each blended by its opacity.

    A point is inside a triangle if the cross products of the three edges with the vectors from
    their starts to the point have the same sign or are zero. So edges belong to their triangle, a
    triangle flattened to a line covers the whole line across the canvas, and one shrunk to a point
    covers everything.

    Args:
        painting: The triangles.
        canvas: Rows and columns of the grid on which the corners lie.
        size: Rows and columns of the picture, over the same extent; by default the canvas.
    """
    row, column = (_samples(*sides) for sides in zip(canvas, size or canvas, strict=True))
    # Arrays have axes (triangles, batch) from here: the loop takes one triangle of every picture.
    corners = painting.corners.transpose(2, 3, 1, 0)
    edges = [_edge(corners[k], corners[(k + 1) % 3]) for k in range(3)]
    # The sum of the three cross products is the same at every point: twice the signed area. If
    # signs are flipped so that it is not negative, "the same sign" means "not negative". This also
    # holds for an area of zero, where products that are not negative are all zero.
    area = sum(constant for _, _, constant in edges)
    sign = jnp.where(area < 0, -1.0, 1.0)
    edges = jax.tree.map(lambda part: sign * part, edges)

    def paint(picture: Array, triangle: tuple[list[Edge], Array, Array]) -> tuple[Array, None]:
        edges, opacity, color = triangle
        inside = reduce(jnp.minimum, [_products(edge, row, column) for edge in edges]) >= 0
        opacity, color = opacity[:, None, None, None], color[:, :, None, None]
        painted = picture * (1 - opacity) + opacity * color
        return jnp.where(inside[:, None], painted, picture), None

    # Channels come before rows, so that the innermost loop is over pixels of a row and vectorizes.
    batch, _, channels = painting.colors.shape
    black = jnp.zeros((batch, channels, row.shape[0], column.shape[0]), jnp.float32)
    triangles = (edges, painting.opacities.T, painting.colors.swapaxes(0, 1))
    pictures, _ = jax.lax.scan(paint, black, triangles)
    return jnp.moveaxis(pictures, 1, -1)


def _samples(side: int, count: int) -> Float[Array, " count"]:
    """Return ``count`` evenly spaced positions from the first to the last of ``side`` points."""
    # Multiplying first makes a sample that coincides with a point exact, and so are edge tests.
    return jnp.asarray(np.arange(count) * (side - 1) / max(count - 1, 1), jnp.float32)


def _edge(here: Float[Array, "2 *any"], there: Float[Array, "2 *any"]) -> Edge:
    """Return an edge's cross product as the factors of row and column, and the constant."""
    down, across = there - here
    return across, -down, down * here[1] - across * here[0]


def _products(edge: Edge, row: Array, column: Array) -> Float[Array, "batch rows columns"]:
    """Return the cross product at every point, for one triangle of each picture."""
    by_row, by_column, constant = (part[:, None] for part in edge)
    return (by_row * row + constant)[:, :, None] + by_column[:, None] * column
