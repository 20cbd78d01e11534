"""Cholesky factors of many small matrices in one kernel, with one block for each.

CUDA's own routine is no faster for them and cannot be part of a CUDA graph, so that the host would
have to launch every iteration.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from gloam._tools.kernels.products import block_product, padded

LARGEST = 128
"""Largest number of rows."""
_PANEL = 16  # columns processed at once, in registers
_WARPS = 4


def cholesky(matrix: Float[Array, "n n"], *, interpret: bool = False) -> Float[Array, "n n"]:
    """Return the lower factor of a symmetric matrix of at most `LARGEST` rows.

    If the matrix is not positive definite, columns are NaN from the first bad pivot on.
    """
    return pl.pallas_call(
        partial(_factor, interpret=interpret),
        jax.ShapeDtypeStruct(matrix.shape, matrix.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="cholesky",
    )(matrix)


def _factor(matrix, factor, *, interpret: bool) -> None:
    """Panel by panel, from left to right."""
    size = matrix.shape[0]
    height = max(_PANEL, padded(size))
    row, column = jnp.arange(height)[:, None], jnp.arange(_PANEL)[None, :]

    def of_panel(ref, first, rows=height, start=0):
        """Rows of the panel that starts at column ``first``; zero outside the matrix."""
        inside = (start + jnp.arange(rows)[:, None] < size) & (first + column < size)
        return plgpu.load(ref.at[pl.ds(start, rows), pl.ds(first, _PANEL)], mask=inside, other=0.0)

    def one_panel(number, _):
        first = number * _PANEL
        panel = jnp.where(row >= first, of_panel(matrix, first), 0.0)

        def subtract(other, panel):
            left = of_panel(factor, other * _PANEL)
            own = of_panel(factor, other * _PANEL, _PANEL, first)
            return panel - block_product(left, own, (1, 1), interpret=interpret)

        panel = jax.lax.fori_loop(0, number, subtract, panel)
        panel = jax.lax.fori_loop(0, _PANEL, partial(one_column, first), panel)
        below = (row >= first + column) & (row < size) & (first + column < size)
        above = (row < first + column) & (first + column < size)
        plgpu.store(
            factor.at[pl.ds(0, height), pl.ds(first, _PANEL)],
            jnp.where(below, panel, 0.0),
            mask=below | above,
        )
        if not interpret:
            plgpu.debug_barrier()  # the next panels read what other threads have written
        return 0

    def one_column(first, number, panel):
        at = first + number
        down = jnp.sum(jnp.where(column == number, panel, 0.0), axis=1)
        # The same numbers as a row: the square on the diagonal is kept symmetric.
        along = jnp.sum(jnp.where(row == at, panel, 0.0), axis=0)
        places = jnp.arange(_PANEL)
        pivot = jnp.sum(jnp.where(places == number, along, 0.0))
        scale = jnp.where(at < size, jax.lax.rsqrt(pivot), 0.0)
        down = jnp.where(jnp.arange(height) >= at, down * scale, 0.0)[:, None]
        along = jnp.where(places > number, along * scale, 0.0)[None, :]
        return jnp.where(column == number, down, panel - down * along)

    jax.lax.fori_loop(0, -(-size // _PANEL), one_panel, 0)
