"""Discount Model Search (Tjanaka et al., ICLR 2026): emitters guided by a discount model."""

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
from gloam.discounts import DiscountModel
from gloam.emitters import (
    AdaptiveMixture,
    BasicRestart,
    CmaEmitters,
    Emitter,
    GradientAscent,
    Recombination,
    Swaps,
)

_PIECES = Piece(CmaEmitters), Piece(DiscountModel, without=("space",))


@register_algorithm
@composed_of(*_PIECES)
class DMS(Algorithm):
    """Discount Model Search.

    Three fifths of each batch come from CMA-ES emitters, which rank solutions by their improvement
    over the discount model, and two fifths from moves between elites. When these no longer fill
    cells, swaps of variables between elites take over, which refine them. It is composed of
    `gloam.emitters.CmaEmitters`, `gloam.emitters.Recombination` and `gloam.emitters.Swaps` in a
    `gloam.emitters.AdaptiveMixture`, the archive and ``DiscountModel()``. `DMS.paper` is the
    paper's form, with CMA-ES emitters alone.

    Args:
        archive: The cells to fill.
        num_moves: Number of solutions per iteration by moves between elites
            (`gloam.emitters.Recombination`); by default two thirds of those of the emitters.
        gradients: Whether half of each batch climbs by gradients through the discount model
            (`gloam.emitters.GradientAscent`). The evaluation has to be differentiable: by JAX for
            `gloam.run`, by ``vjp`` for `gloam.optimize` and `gloam.Search`. There are 3 emitters by
            default, one and a half times as many moves, and ``first_visit`` is 0.3.
        name: Name in tables and figures.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(4), sigma0=0.2), seed=1)
        >>> solutions = search.ask()
        >>> search.tell(objectives=-np.square(solutions).sum(axis=1), measures=solutions[:, :2])
        >>> search.elites().coverage > 0
        True
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_moves: int | None = None,
        gradients: bool = False,
        name: str = "DMS",
        **options: Any,
    ):
        emitter, discount = split_options(DMS, options, *_PIECES)
        checks.instance("name", name, str)
        self.archive, self.name = checked_archive(archive), name
        checks.instance("gradients", gradients, bool)
        if gradients:
            emitter.setdefault("num_emitters", 3)
            # Gradients lead from visited regions to empty ones only if their discounts differ.
            discount.setdefault("first_visit", 0.3)
        cma = CmaEmitters(x0, sigma0, **emitter)
        if num_moves is None:  # a multiple of the number of emitters, for asynchronous search
            share = 3 * cma.batch_size // 2 if gradients else 2 * cma.batch_size // 3
            num_moves = cma.num_emitters * share
        number = checks.count("num_moves", num_moves, minimum=0)
        total = cma.num_solutions + number
        start: Any = cma.x0, cma.sigma0
        bounds: Any = cma.bounds
        parts: list[Emitter] = [cma]
        if number:
            parts.append(Recombination(*start, batch_size=number, bounds=bounds))
        if gradients:
            parts.append(GradientAscent(*start, batch_size=total, bounds=bounds))
        if len(parts) > 1:
            swaps = Swaps(*start, batch_size=total, bounds=bounds)
            self.emitter = AdaptiveMixture([*parts, swaps])
        else:
            self.emitter = cma
        self.discount = DiscountModel(**discount).for_archive(archive)

    @classmethod
    def paper(
        cls, archive: Archive, x0: Any, sigma0: float | ArrayLike | None = None, **options: Any
    ) -> "DMS":
        """Build Discount Model Search as in the paper, with the arguments of `DMS`.

        Set ``f_min`` of the archive at or below the lowest objective that you expect, because
        the discount starts there (at 0 by default): a solution below it is not an improvement.

        Example:
            >>> import gloam, numpy as np
            >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1, f_min=-4)
            >>> algorithm = gloam.DMS.paper(archive, np.zeros(4), 0.2, alpha=0.05)
            >>> algorithm.emitter.num_emitters, algorithm.discount.floor
            (15, -4.0)
        """
        expected, fix = "False: the paper has none", "Use gloam.DMS(..., gradients=True)."
        checks.expect(not options.get("gradients"), "gradients", expected, True, fix)
        paper = {
            "name": "DMS (paper)",
            "num_moves": 0,
            "num_emitters": 15,
            "restart": BasicRestart(),
            "alpha": 0.1,
            "floor": checked_archive(archive).f_min or 0.0,
            "ceiling": 1.0,
            "num_empty_points": 100,
            "learning_rate": 1e-3,
        }
        return cls(archive, x0, sigma0, **(paper | options))
