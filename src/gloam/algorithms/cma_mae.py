"""CMA-MAE (Fontaine and Nikolaidis, 2023): CMA-ES emitters and a threshold per cell."""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm
from gloam.archives import Archive
from gloam.discounts import Discount, Thresholds
from gloam.emitters import CmaEmitters, Emitter, RestartRule, SelectionRule, Strategy


class CMAMAE(Algorithm):
    """CMA-MAE; with ``alpha=1`` it is CMA-ME.

    Args:
        archive: The cells to fill. Its ``f_min`` is where thresholds start: set it at or below the
            lowest objective that you expect.
        x0: ``(sol,)`` starting solution.
        sigma0: Standard deviation of the first solutions, and after restarts.
        alpha: Archive learning rate: 1 explores only, 0 optimises only.
        num_emitters, batch_size, restart, selection, lower, upper, strategy: As in `DMS`.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.CMAMAE(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    emitter: Emitter
    archive: Archive
    discount: Discount

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        alpha: float = 0.01,
        restart: RestartRule | None = None,
        selection: SelectionRule | None = None,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        strategy: Strategy | None = None,
    ):
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        self.archive = archive
        self.emitter = CmaEmitters(
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            restart=restart,
            selection=selection,
            lower=lower,
            upper=upper,
            strategy=strategy,
        )
        self.discount = Thresholds(archive.num_cells, alpha=alpha, f_min=archive.f_min)
