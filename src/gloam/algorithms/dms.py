"""Discount Model Search (Tjanaka et al., ICLR 2026): emitters guided by a discount model."""

from typing import Any

from gloam import checks
from gloam.algorithms.algorithm import Algorithm, Piece, check_archive, composed_of, split_options
from gloam.archives import Archive
from gloam.discounts import DiscountModel
from gloam.emitters import (
    BasicRestart,
    CmaEmitters,
    Mixture,
    Recombination,
    RestartRule,
    RestartWhenIdle,
)

_PIECES = Piece(CmaEmitters), Piece(DiscountModel, without=("lower", "upper", "shape"))
# Of the moves between elites: noise in units of sigma0. `docs/research/default-search.md` has what
# was compared.
_NOISE = 0.04


@composed_of(*_PIECES)
class DMS(Algorithm):
    """Discount Model Search.

    Three fifths of each batch come from CMA-ES emitters, ranked by their improvement over the
    discount model, and two fifths from moves between elites. `DMS.paper` is the form of the paper,
    with CMA-ES emitters alone.

    Args:
        archive: The cells to fill. Its ``f_min`` counts for the QD score only, unless you give
            ``f_min``.
        num_moves: Number of solutions per iteration by moves between elites
            (`gloam.emitters.Recombination`); by default two thirds as many as the emitters make.
        num_emitters: Number of CMA-ES instances.
        restart: When emitters restart from a random elite; `gloam.emitters.RestartWhenIdle` by
            default.
        first_visit: A solution above the discount raises it at once to this share of the objective,
            both counted from ``f_min``, and from there by ``alpha``.
        f_min: Where the discount model starts: at or below the lowest objective that you expect.
            By default it is estimated from the elites as the search runs.
        f_max: Largest objective that you expect, estimated by default.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(4), sigma0=0.2), seed=1)
        >>> solutions = search.ask()
        >>> search.tell(objectives=-np.square(solutions).sum(axis=1), measures=solutions[:, :2])
        >>> search.elites.coverage > 0
        True
    """

    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | None = None,
        *,
        num_moves: int | None = None,
        num_emitters: int = 9,
        restart: RestartRule | None = None,
        alpha: float = 0.01,
        first_visit: float | None = 0.3,
        f_min: float | None = None,
        f_max: float | None = None,
        num_empty_points: int = 10,
        learning_rate: float = 3e-4,
        **options: Any,
    ):
        emitter, discount = split_options("DMS", options, *_PIECES)
        check_archive(archive)
        self.archive = archive
        restart = RestartWhenIdle() if restart is None else restart
        cma = CmaEmitters(x0, sigma0, num_emitters=num_emitters, restart=restart, **emitter)
        if num_moves is None:  # so many that parts of the search have equally many
            num_moves = num_emitters * (2 * cma.batch_size // 3)
        number = checks.integer("num_moves", num_moves, minimum=0)
        box = {name: emitter[name] for name in ("lower", "upper") if name in emitter}
        self.emitter = Mixture([cma, _moves(cma, number, box)]) if number else cma
        self.discount = DiscountModel(
            archive.lower,
            archive.upper,
            shape=archive.measure_shape,
            alpha=alpha,
            first_visit=first_visit,
            f_min=f_min,
            f_max=f_max,
            num_empty_points=num_empty_points,
            learning_rate=learning_rate,
            **discount,
        )

    @classmethod
    def paper(cls, archive: Archive, x0: Any, sigma0: float, **options: Any) -> "DMS":
        """Discount Model Search as the paper has it, with the arguments of `DMS`.

        Set ``f_min`` of the archive at or below the lowest objective that you expect: a solution
        below it is no improvement.

        Example:
            >>> import gloam, numpy as np
            >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1, f_min=-4)
            >>> algorithm = gloam.DMS.paper(archive, np.zeros(4), 0.2, alpha=0.05)
            >>> algorithm.emitter.num_emitters, algorithm.discount.f_min
            (15, -4.0)
        """
        check_archive(archive)
        paper = {
            "num_moves": 0,
            "num_emitters": 15,
            "restart": BasicRestart(),
            "alpha": 0.1,
            "first_visit": None,
            "f_min": archive.f_min,
            "f_max": 1.0,
            "num_empty_points": 100,
            "learning_rate": 1e-3,
        }
        return cls(archive, x0, sigma0, **(paper | options))


def _moves(cma: CmaEmitters, number: int, box: dict[str, Any]) -> Recombination:
    """Moves between elites, with noise by the emitters' step size."""
    return Recombination(cma.x0, _NOISE * cma.sigma0, batch_size=number, **box)
