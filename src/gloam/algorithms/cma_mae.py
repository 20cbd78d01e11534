"""CMA-MAE (Fontaine and Nikolaidis, 2023): CMA-ES emitters and a threshold per cell."""

from typing import Any

from gloam.algorithms.algorithm import Algorithm, check_archive
from gloam.algorithms.composition import Piece, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import Thresholds
from gloam.emitters import CmaEmitters

_PIECES = Piece(CmaEmitters), Piece(Thresholds, without=("num_cells", "f_min"))


@composed_of(*_PIECES)
class CMAMAE(Algorithm):
    """CMA-MAE; with ``alpha=1`` it is CMA-ME.

    Args:
        archive: The cells to fill. Its ``f_min`` is where thresholds start: set it at or below the
            lowest objective that you expect.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.CMAMAE(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    def __init__(self, archive: Archive, x0: Any, sigma0: float | None = None, **options: Any):
        emitter, discount = split_options("CMAMAE", options, *_PIECES)
        check_archive(archive)
        self.archive = archive
        self.emitter = CmaEmitters(x0, sigma0, **emitter)
        self.discount = Thresholds(archive.num_cells, f_min=archive.f_min, **discount)
