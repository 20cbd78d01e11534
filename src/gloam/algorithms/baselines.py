"""CMA-MAE (Fontaine and Nikolaidis, 2023): CMA-ES emitters and a threshold per cell.

Density Descent Search (Lee et al., 2024), KDE form: CMA-ES emitters seek low density.

MAP-Elites (Mouret and Clune, 2015), and with the iso+line operator (Vassiliades, 2018).
"""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm, Piece, check_archive, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import KernelDensity, NoDiscount, Thresholds
from gloam.emitters import CmaEmitters, Variation

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


_DDS_PIECES = Piece(CmaEmitters), Piece(KernelDensity, without=("measure_dim",))


@composed_of(*_DDS_PIECES)
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
        emitter, discount = split_options("DDS", options, *_DDS_PIECES)
        check_archive(archive)
        self.archive = archive
        self.emitter = CmaEmitters(x0, sigma0, **emitter)
        self.discount = KernelDensity(archive.measure_dim, **discount)


_EMITTER = Piece(Variation, without=("line_sigma",))


@composed_of(_EMITTER)
class MAPElites(Algorithm):
    """MAP-Elites: Gaussian noise around random elites.

    Args:
        archive: The cells to fill.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.MAPElites(archive, np.zeros(4), sigma=0.1).emitter.num_solutions
        540
    """

    def __init__(self, archive: Archive, x0: Any, sigma: float, **options: Any):
        (emitter,) = split_options("MAPElites", options, _EMITTER)
        check_archive(archive)
        self.archive = archive
        self.emitter = Variation(x0, sigma, **emitter)
        self.discount = NoDiscount()


@composed_of(_EMITTER)
class MAPElitesLine(Algorithm):
    """MAP-Elites (line): noise around an elite, and along the line to another.

    Args:
        archive: The cells to fill.
        line_sigma: Standard deviation along the line (the paper's sigma_2; ``sigma`` is sigma_1).
    """

    def __init__(
        self, archive: Archive, x0: Any, sigma: float, line_sigma: float = 0.2, **options: Any
    ):
        (emitter,) = split_options("MAPElitesLine", options, _EMITTER)
        check_archive(archive)
        checks.number("line_sigma", line_sigma, above=0.0, fix="Without it, use MAPElites.")
        self.archive = archive
        self.emitter = Variation(x0, sigma, line_sigma=line_sigma, **emitter)
        self.discount = NoDiscount()
