"""The baselines: CMA-MAE, CMA-MEGA, CMA-MAEGA, Density Descent Search and MAP-Elites.

Their arguments are the settings that people change. To change others, compose the same pieces with
`gloam.Algorithm`.
"""

from typing import Any

from jaxtyping import ArrayLike

from gloam._tools import checks
from gloam.algorithms.algorithm import Algorithm, checked_archive, register_algorithm
from gloam.archives import Archive
from gloam.discounts import KernelDensity, NoDiscount, Thresholds
from gloam.emitters import (
    Arborescences,
    BasicRestart,
    CmaEmitters,
    RestartRule,
    RestartWithoutImprovement,
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
class CMAMEGA(Algorithm):
    """CMA-MEGA (Fontaine and Nikolaidis, 2021), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions in empty cells rank
    first. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting point of every emitter.
        sigma0: Standard deviation of the first coefficients, and after restarts. Since gradients
            have length 1, it is a distance between solutions.
        num_emitters: Number of points.
        batch_size: Number of solutions per point and iteration: the point and its branches.
        learning_rate: Share of the step to the mean of the best branches; with ``adam``, its
            step size.
        adam: Move points by Adam instead of plain gradient ascent.
        restart: Decides when a point restarts from a random elite;
            `gloam.emitters.RestartWithoutImprovement` by default.
        strategy: Evolution strategy of the coefficients; ``CMAES()`` by default.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.algorithms.CMAMEGA(domain.archive(), domain.x0, sigma0=10.0)
        >>> result = gloam.run(domain, algorithm, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620]
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        learning_rate: float = 1.0,
        adam: bool = False,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
    ):
        emitter = Arborescences(
            x0,
            sigma0,
            checked_archive(archive).measure_dim,
            num_emitters=num_emitters,
            batch_size=batch_size,
            learning_rate=learning_rate,
            adam=adam,
            two_stage=True,
            restart=RestartWithoutImprovement() if restart is None else restart,
            strategy=strategy,
        )
        super().__init__(emitter, archive, NoDiscount(), "CMA-MEGA")


@register_algorithm
class CMAMAEGA(Algorithm):
    """CMA-MAEGA (Fontaine and Nikolaidis, 2023), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions rank by their
    improvement over the thresholds of CMA-MAE. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting point of every emitter.
        sigma0: Standard deviation of the first coefficients, and after restarts. Since gradients
            have length 1, it is a distance between solutions.
        num_emitters: Number of points.
        batch_size: Number of solutions per point and iteration: the point and its branches.
        learning_rate: Share of the step to the mean of the best branches; with ``adam``, its
            step size.
        adam: Move points by Adam instead of plain gradient ascent.
        restart: Decides when a point restarts from a random elite;
            `gloam.emitters.BasicRestart` by default.
        strategy: Evolution strategy of the coefficients; ``CMAES()`` by default.
        alpha: Archive learning rate: 1 only explores, 0 only optimizes.
        floor: Initial threshold of a cell: at or below the lowest objective that you expect. By
            default ``f_min`` of the archive, or 0.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.algorithms.CMAMAEGA(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        learning_rate: float = 1.0,
        adam: bool = False,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
        alpha: float = 0.01,
        floor: float | None = None,
    ):
        emitter = Arborescences(
            x0,
            sigma0,
            checked_archive(archive).measure_dim,
            num_emitters=num_emitters,
            batch_size=batch_size,
            learning_rate=learning_rate,
            adam=adam,
            restart=restart,
            strategy=strategy,
        )
        super().__init__(emitter, archive, Thresholds(alpha=alpha, floor=floor), "CMA-MAEGA")


@register_algorithm
class DDS(Algorithm):
    """Density Descent Search (Lee et al., 2024), which ignores the objective while it searches.

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
        bandwidth: Standard deviation of the Gaussian kernel, in units of the measures (of unit
            vectors in a cosine archive).
        buffer_size: Number of measures in the buffer of the density.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.DDS(archive, np.zeros(4), 0.2, bandwidth=0.1).discount.buffer_size
        10000
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
        bandwidth: float,
        buffer_size: int = 10_000,
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
        density = KernelDensity(bandwidth=bandwidth, buffer_size=buffer_size)
        super().__init__(emitter, archive, density, "DDS")


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
