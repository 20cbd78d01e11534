"""Density Descent Search (Lee et al., 2024), KDE form: CMA-ES emitters seek low density."""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm
from gloam.archives import Archive
from gloam.discounts import BufferPolicy, Discount, KernelDensity
from gloam.emitters import CmaEmitters, Emitter, RestartRule, SelectionRule, Strategy


class DDS(Algorithm):
    """Density Descent Search. It ignores the objective while it searches.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting solution.
        sigma0: Standard deviation of the first solutions, and after restarts.
        bandwidth: Of the Gaussian kernel, in units of the measures (of measures of length one in a
            cosine archive).
        buffer_size: Measures that the density is made of.
        policy: Which measures those are; `gloam.discounts.Reservoir` by default.
        num_emitters, batch_size, restart, selection, lower, upper, strategy: As in `DMS`.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.DDS(archive, np.zeros(4), 0.2, bandwidth=0.1).discount.buffer_size
        10000
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
        bandwidth: float,
        buffer_size: int = 10_000,
        policy: BufferPolicy | None = None,
        num_emitters: int = 15,
        batch_size: int = 36,
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
        self.discount = KernelDensity(
            archive.measure_dim, bandwidth=bandwidth, buffer_size=buffer_size, policy=policy
        )
