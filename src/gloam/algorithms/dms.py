"""Discount Model Search (Tjanaka et al., ICLR 2026): CMA-ES emitters guided by a discount model."""

from typing import Any

from gloam.algorithms.algorithm import Algorithm, check_archive
from gloam.algorithms.composition import Piece, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import DiscountModel
from gloam.emitters import CmaEmitters

_PIECES = Piece(CmaEmitters), Piece(DiscountModel, without=("lower", "upper", "f_min", "shape"))


@composed_of(*_PIECES)
class DMS(Algorithm):
    """Discount Model Search.

    Args:
        archive: The cells to fill. Its ``f_min`` is where the discount model starts: set it at or
            below the lowest objective that you expect. A solution below it is no improvement, so
            with all objectives negative and the default ``f_min=0`` the search finds very little.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1, f_min=-4)
        >>> algorithm = gloam.DMS(archive, x0=np.zeros(4), sigma0=0.2, f_max=0)
        >>> search = gloam.Search(algorithm, seed=1)
        >>> solutions = search.ask()
        >>> search.tell(objectives=-np.square(solutions).sum(axis=1), measures=solutions[:, :2])
        >>> search.elites.coverage > 0
        True
    """

    def __init__(self, archive: Archive, x0: Any, sigma0: float, **options: Any):
        emitter, discount = split_options("DMS", options, *_PIECES)
        check_archive(archive)
        self.archive = archive
        self.emitter = CmaEmitters(x0, sigma0, **emitter)
        self.discount = DiscountModel(
            archive.lower,
            archive.upper,
            f_min=archive.f_min,
            shape=archive.measure_shape,
            **discount,
        )
