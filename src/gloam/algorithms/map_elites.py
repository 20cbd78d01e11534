"""MAP-Elites (Mouret and Clune, 2015), and with the iso+line operator (Vassiliades, 2018)."""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm
from gloam.archives import Archive
from gloam.discounts import Discount, NoDiscount
from gloam.emitters import Emitter, Variation


class MAPElites(Algorithm):
    """MAP-Elites: Gaussian noise around random elites.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` solution varied while the archive is empty.
        sigma: Standard deviation of the noise.
        batch_size: Solutions per iteration.
        lower, upper: Optional box of the solutions.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.MAPElites(archive, np.zeros(4), sigma=0.1).emitter.num_solutions
        540
    """

    emitter: Emitter
    archive: Archive
    discount: Discount

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma: float,
        *,
        batch_size: int = 540,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
    ):
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        self.archive = archive
        self.emitter = Variation(x0, sigma, batch_size=batch_size, lower=lower, upper=upper)
        self.discount = NoDiscount()


class MAPElitesLine(Algorithm):
    """MAP-Elites (line): noise around an elite, and along the line to another.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` solution varied while the archive is empty.
        sigma: Standard deviation of the isotropic noise (the paper's sigma_1).
        line_sigma: Standard deviation along the line (sigma_2).
        batch_size: Solutions per iteration.
        lower, upper: Optional box of the solutions.
    """

    emitter: Emitter
    archive: Archive
    discount: Discount

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma: float,
        line_sigma: float = 0.2,
        *,
        batch_size: int = 540,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
    ):
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        checks.number("line_sigma", line_sigma, above=0.0, fix="Without it, use MAPElites.")
        self.archive = archive
        self.emitter = Variation(
            x0, sigma, line_sigma=line_sigma, batch_size=batch_size, lower=lower, upper=upper
        )
        self.discount = NoDiscount()
