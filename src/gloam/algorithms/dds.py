"""Density Descent Search (Lee et al., 2024), KDE form: CMA-ES emitters seek low density."""

from typing import Any

from gloam.algorithms.algorithm import Algorithm, check_archive
from gloam.algorithms.composition import Piece, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import KernelDensity
from gloam.emitters import CmaEmitters

_PIECES = Piece(CmaEmitters), Piece(KernelDensity, without=("measure_dim",))


@composed_of(*_PIECES)
class DDS(Algorithm):
    """Density Descent Search. It ignores the objective while it searches.

    Args:
        archive: The cells to fill.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.DDS(archive, np.zeros(4), 0.2, bandwidth=0.1).discount.buffer_size
        10000
    """

    def __init__(self, archive: Archive, x0: Any, sigma0: float | None = None, **options: Any):
        emitter, discount = split_options("DDS", options, *_PIECES)
        check_archive(archive)
        self.archive = archive
        self.emitter = CmaEmitters(x0, sigma0, **emitter)
        self.discount = KernelDensity(archive.measure_dim, **discount)
