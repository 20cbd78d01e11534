"""The baselines: CMA-MAE, CMA-MEGA, CMA-MAEGA, Density Descent Search and MAP-Elites."""

from typing import Any

from jaxtyping import ArrayLike

from gloam._tools import checks
from gloam.algorithms.algorithm import (
    Algorithm,
    Piece,
    checked_archive,
    composed_of,
    register_algorithm,
    split_options,
)
from gloam.archives import Archive
from gloam.discounts import KernelDensity, NoDiscount, Thresholds
from gloam.emitters import (
    Arborescences,
    BasicRestart,
    CmaEmitters,
    RestartRule,
    RestartWithoutImprovement,
    Variation,
)

_CMA_MAE = Piece(CmaEmitters), Piece(Thresholds, without=("num_cells",))
_MEGA = Piece(Arborescences, without=("measure_dim", "two_stage"))
_MAEGA = _MEGA, Piece(Thresholds, without=("num_cells",))
_DDS = Piece(CmaEmitters), Piece(KernelDensity)
_VARIATION = Piece(Variation, without=("line_sigma",))


@register_algorithm
@composed_of(*_CMA_MAE)
class CMAMAE(Algorithm):
    """CMA-MAE (Fontaine and Nikolaidis, 2023); with ``alpha=1`` it is CMA-ME.

    Args:
        archive: The cells to fill.
        num_emitters: Number of CMA-ES instances.
        restart: Decides when emitters restart from a random elite; `gloam.emitters.BasicRestart`
            by default.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.CMAMAE(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        restart: RestartRule | None = None,
        **options: Any,
    ):
        emitter, discount = split_options(CMAMAE, options, *_CMA_MAE)
        restart = BasicRestart() if restart is None else restart
        self.archive, self.name = checked_archive(archive), "CMA-MAE"
        self.emitter = CmaEmitters(
            x0, sigma0, num_emitters=num_emitters, restart=restart, **emitter
        )
        self.discount = Thresholds(**discount).for_archive(archive)


@register_algorithm
@composed_of(_MEGA)
class CMAMEGA(Algorithm):
    """CMA-MEGA (Fontaine and Nikolaidis, 2021), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions in empty cells rank
    first. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.
        restart: Decides when emitters restart from a random elite;
            `gloam.emitters.RestartWithoutImprovement` by default.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.algorithms.CMAMEGA(domain.archive(), domain.x0, sigma0=10.0)
        >>> result = gloam.run(domain, algorithm, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620]
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        restart: RestartRule | None = None,
        **options: Any,
    ):
        (emitter,) = split_options(CMAMEGA, options, _MEGA)
        restart = RestartWithoutImprovement() if restart is None else restart
        self.archive, self.name = checked_archive(archive), "CMA-MEGA"
        self.emitter = Arborescences(
            x0, sigma0, archive.measure_dim, two_stage=True, restart=restart, **emitter
        )
        self.discount = NoDiscount()


@register_algorithm
@composed_of(*_MAEGA)
class CMAMAEGA(Algorithm):
    """CMA-MAEGA (Fontaine and Nikolaidis, 2023), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions rank by their
    improvement over the thresholds of CMA-MAE. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.algorithms.CMAMAEGA(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    def __init__(self, archive: Archive, x0: Any, sigma0: float, **options: Any):
        emitter, discount = split_options(CMAMAEGA, options, *_MAEGA)
        self.archive, self.name = checked_archive(archive), "CMA-MAEGA"
        self.emitter = Arborescences(x0, sigma0, archive.measure_dim, **emitter)
        self.discount = Thresholds(**discount).for_archive(archive)


@register_algorithm
@composed_of(*_DDS)
class DDS(Algorithm):
    """Density Descent Search (Lee et al., 2024), which ignores the objective while it searches.

    Args:
        archive: The cells to fill.
        num_emitters: Number of CMA-ES instances.
        restart: Decides when emitters restart from a random elite; `gloam.emitters.BasicRestart`
            by default.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.DDS(archive, np.zeros(4), 0.2, bandwidth=0.1).discount.buffer_size
        10000
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        restart: RestartRule | None = None,
        **options: Any,
    ):
        emitter, discount = split_options(DDS, options, *_DDS)
        if "bandwidth" not in discount:
            raise TypeError(
                "DDS() missing 1 required keyword argument: 'bandwidth'. It is the standard "
                "deviation of the kernel, in units of the measures."
            )
        restart = BasicRestart() if restart is None else restart
        self.archive, self.name = checked_archive(archive), "DDS"
        self.emitter = CmaEmitters(
            x0, sigma0, num_emitters=num_emitters, restart=restart, **emitter
        )
        self.discount = KernelDensity(**discount)


@register_algorithm
@composed_of(_VARIATION)
class MAPElites(Algorithm):
    """MAP-Elites (Mouret and Clune, 2015): Gaussian noise around random elites.

    Args:
        archive: The cells to fill.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam.MAPElites(archive, np.zeros(4), sigma0=0.1).emitter.num_solutions
        540
    """

    def __init__(
        self, archive: Archive, x0: Any, sigma0: float | ArrayLike | None = None, **options: Any
    ):
        (emitter,) = split_options(MAPElites, options, _VARIATION)
        self.archive, self.name = checked_archive(archive), "MAP-Elites"
        self.emitter = Variation(x0, sigma0, **emitter)
        self.discount = NoDiscount()


@register_algorithm
@composed_of(_VARIATION)
class MAPElitesLine(Algorithm):
    """MAP-Elites (line), with the iso+line operator (Vassiliades and Mouret, 2018).

    Args:
        archive: The cells to fill.
        line_sigma: Standard deviation along the line (the paper's sigma_2; ``sigma0`` is sigma_1).
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        line_sigma: float = 0.2,
        **options: Any,
    ):
        (emitter,) = split_options(MAPElitesLine, options, _VARIATION)
        checks.number("line_sigma", line_sigma, above=0.0, fix="Without lines, use MAPElites.")
        self.archive, self.name = checked_archive(archive), "MAP-Elites (line)"
        self.emitter = Variation(x0, sigma0, line_sigma=line_sigma, **emitter)
        self.discount = NoDiscount()
