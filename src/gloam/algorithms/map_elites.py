"""MAP-Elites (Mouret and Clune, 2015), and with the iso+line operator (Vassiliades, 2018)."""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm, check_archive
from gloam.algorithms.composition import Piece, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import NoDiscount
from gloam.emitters import Variation

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
