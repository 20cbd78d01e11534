"""The baselines: CMA-MAE and MAP-Elites.

Their arguments are the settings that people change. To change others, compose the same pieces with
`gloam.Algorithm`.
"""

from typing import Any

from jaxtyping import ArrayLike

from gloam._tools import checks
from gloam.algorithms.algorithm import Algorithm, register_algorithm
from gloam.archives import Archive
from gloam.discounts import NoDiscount, Thresholds
from gloam.emitters import (
    BasicRestart,
    CmaEmitters,
    RestartRule,
    Strategy,
    Variation,
)
from gloam.emitters.emitter import Outside


@register_algorithm
class CMAMAE(Algorithm):
    """CMA-MAE (Fontaine and Nikolaidis, 2023); with ``alpha=1`` it is CMA-ME.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting solution of every CMA-ES instance, a `gloam.Space`, or a pytree of
            arrays.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts: one
            number, or one for each variable. With bounds on both sides it is a share of their
            width, by default a fifth.
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` or ``"reflect"``.
        restart: Decides when an instance restarts from a random elite;
            `gloam.emitters.BasicRestart` by default.
        strategy: Evolution strategy of the instances, as for `gloam.DMS`.
        alpha: Archive learning rate: 1 only explores, 0 only optimizes.
        floor: Initial threshold of a cell: at or below the lowest objective that you expect. By
            default ``f_min`` of the archive, or 0.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.CMAMAE(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
        alpha: float = 0.01,
        floor: float | None = None,
    ):
        emitter = CmaEmitters(
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            restart=BasicRestart() if restart is None else restart,
            bounds=bounds,
            outside=outside,
            strategy=strategy,
        )
        super().__init__(emitter, archive, Thresholds(alpha=alpha, floor=floor), "CMA-MAE")


@register_algorithm
class MAPElites(Algorithm):
    """MAP-Elites (Mouret and Clune, 2015): Gaussian noise around random elites.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` solution that is varied while the archive is empty, a `gloam.Space`, or a
            pytree of arrays.
        sigma0: Standard deviation of the noise: one number, or one for each variable. With bounds
            on both sides it is a share of their width, by default a tenth.
        batch_size: Number of solutions per iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` or ``"reflect"``.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.MAPElites(archive, np.zeros(4), sigma0=0.1).emitter.num_solutions
        540
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        batch_size: int = 540,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        emitter = Variation(x0, sigma0, batch_size=batch_size, bounds=bounds, outside=outside)
        super().__init__(emitter, archive, NoDiscount(), "MAP-Elites")


@register_algorithm
class MAPElitesLine(Algorithm):
    """MAP-Elites (line), with the iso+line operator (Vassiliades and Mouret, 2018).

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` solution that is varied while the archive is empty, a `gloam.Space`, or a
            pytree of arrays.
        sigma0: Standard deviation of the noise: one number, or one for each variable. With bounds
            on both sides it is a share of their width, by default a tenth.
        line_sigma: Standard deviation along the line (the paper's sigma_2; ``sigma0`` is sigma_1).
        batch_size: Number of solutions per iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` or ``"reflect"``.
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        line_sigma: float = 0.2,
        *,
        batch_size: int = 540,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        checks.number("line_sigma", line_sigma, above=0.0, fix="Without lines, use MAPElites.")
        emitter = Variation(
            x0,
            sigma0,
            line_sigma=line_sigma,
            batch_size=batch_size,
            bounds=bounds,
            outside=outside,
        )
        super().__init__(emitter, archive, NoDiscount(), "MAP-Elites (line)")
