"""Discount Model Search (Tjanaka et al., ICLR 2026): emitters guided by a discount model."""

from typing import Any

import equinox as eqx
from jaxtyping import ArrayLike

from gloam._tools import checks
from gloam.algorithms.algorithm import Algorithm, checked_archive, register_algorithm
from gloam.archives import Archive
from gloam.discounts import DiscountModel
from gloam.emitters import (
    AdaptiveMixture,
    AimedCmaEmitters,
    AimedMoves,
    BasicRestart,
    CmaEmitters,
    Emitter,
    GradientAscent,
    Recombination,
    RestartRule,
    Strategy,
    Swaps,
)
from gloam.emitters.emitter import Outside

# Smallest share of both kinds of CMA-ES, which lead to regions from which moves fill many cells,
# and of the other emitters.
_EXPLORING, _LEAST = 0.2, 0.02


@register_algorithm
class DMS(Algorithm):
    """Discount Model Search.

    Five emitters share each batch by what they bring to the QD score: CMA-ES instances that rank
    solutions by their improvement over the discount model, CMA-ES instances that each aim at an
    empty cell, combinations of elites that are near an empty cell, moves between elites, and swaps
    of variables between elites, which refine them. It is composed of `gloam.emitters.CmaEmitters`,
    `gloam.emitters.AimedCmaEmitters`, `gloam.emitters.AimedMoves`, `gloam.emitters.Recombination`
    and `gloam.emitters.Swaps` in a `gloam.emitters.AdaptiveMixture`, in which each of the first two
    has at least a fifth of the batch while all gains are new cells, the archive and
    ``DiscountModel()``. Compose these with `gloam.Algorithm` to change other settings than those
    below. `DMS.paper` is the paper's form, with the first of them alone.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting solution of every CMA-ES instance, a `gloam.Space`, or a pytree of
            arrays.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts: one
            number, or one for each variable. With bounds on both sides it is a share of their
            width, by default a fifth.
        num_emitters: Number of CMA-ES instances of each kind. An iteration has
            ``num_emitters * batch_size`` evaluations.
        batch_size: Number of solutions per instance and iteration.
        mixture: Whether the other emitters share the batch; otherwise there are only CMA-ES
            instances that rank by the improvement.
        gradients: Whether up to half of each batch climbs by gradients
            (`gloam.emitters.GradientAscent`): to empty cells, through the discount model, and by
            the objective within a cell. The evaluation has to be differentiable: by JAX for
            `gloam.run`, by ``vjp`` for `gloam.optimize` and `gloam.Search`.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` moves them to the bound,
            ``"reflect"`` as far inside as they were outside.
        restart: Decides when an instance restarts from a random elite;
            `gloam.emitters.RestartWhenIdle` by default.
        strategy: ``CMAES()``, ``SepCMAES()`` or ``LMMAES()`` of `gloam.emitters`; by default
            ``CMAES()`` for solutions of up to 1,000 numbers and ``LMMAES()`` for larger ones.
        alpha: Archive learning rate: 1 only explores, 0 only optimizes.
        first_visit: A solution above the discount raises it at once to this share of the objective,
            both counted from ``floor``. 0 by default, as in the paper.
        floor: Discount of empty regions: at or below the lowest objective that you expect;
            estimated during the search by default.
        ceiling: Largest objective that you expect, which scales the loss at which training stops;
            estimated by default.
        network: Discount model: any Equinox module from one row of measures to a number, see
            `gloam.discounts.networks`; by default the paper's MLP.
        num_empty_points: Number of empty cells trained to ``floor`` in each iteration.
        num_init_points: Number of cells for the first fit of the model.
        learning_rate: Learning rate of the model.
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

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        mixture: bool = True,
        gradients: bool = False,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
        alpha: float = 0.01,
        first_visit: float | None = None,
        floor: float | None = None,
        ceiling: float | None = None,
        network: eqx.Module | None = None,
        num_empty_points: int = 10,
        num_init_points: int = 1000,
        learning_rate: float = 3e-4,
        name: str = "DMS",
    ):
        checks.instance("gradients", gradients, bool)
        checks.instance("mixture", mixture, bool)
        fix = "Leave mixture out."
        checks.expect(mixture or not gradients, "gradients", "False without a mixture", True, fix)
        discount = DiscountModel(
            alpha=alpha,
            first_visit=first_visit,
            floor=floor,
            ceiling=ceiling,
            network=network,
            num_empty_points=num_empty_points,
            num_init_points=num_init_points,
            learning_rate=learning_rate,
            space=checked_archive(archive).measure_space,
        )
        cma = CmaEmitters(
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            restart=restart,
            bounds=bounds,
            outside=outside,
            strategy=strategy,
        )
        emitter = _mixture(cma, gradients) if mixture else cma
        super().__init__(emitter, archive, discount, name)

    @classmethod
    @checks.names_arguments
    def paper(
        cls,
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
        alpha: float = 0.1,
        floor: float | None = None,
        ceiling: float = 1.0,
        network: eqx.Module | None = None,
        num_empty_points: int = 100,
        num_init_points: int = 1000,
        learning_rate: float = 1e-3,
        name: str = "DMS (paper)",
    ) -> "DMS":
        """Build Discount Model Search as in the paper: without moves and without gradients.

        The arguments are those of `DMS`, with the paper's defaults: ``restart`` is
        `gloam.emitters.BasicRestart`, and ``floor`` is ``f_min`` of the archive, or 0. Set it at or
        below the lowest objective that you expect: a solution below it is not an improvement.

        Example:
            >>> import gloam, numpy as np
            >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1, f_min=-4)
            >>> algorithm = gloam.DMS.paper(archive, np.zeros(4), 0.2, alpha=0.05)
            >>> algorithm.emitter.num_emitters, algorithm.discount.floor
            (15, -4.0)
        """
        return cls(
            archive,
            x0,
            sigma0,
            num_emitters=num_emitters,
            batch_size=batch_size,
            mixture=False,
            bounds=bounds,
            outside=outside,
            restart=BasicRestart() if restart is None else restart,
            strategy=strategy,
            alpha=alpha,
            floor=(checked_archive(archive).f_min or 0.0) if floor is None else floor,
            ceiling=ceiling,
            network=network,
            num_empty_points=num_empty_points,
            num_init_points=num_init_points,
            learning_rate=learning_rate,
            name=name,
        )


def _mixture(cma: CmaEmitters, gradients: bool) -> Emitter:
    """Return everything that proposes solutions, in shares that follow what it brings."""
    start: Any = cma.x0, cma.sigma0
    each: Any = {"num_emitters": cma.num_emitters, "batch_size": cma.batch_size}
    whole = cma.num_solutions
    bounds: Any = cma.bounds
    emitters: list[Emitter] = [
        cma,
        AimedCmaEmitters(*start, bounds=bounds, **each),
        AimedMoves(*start, bounds=bounds, batch_size=whole),
        Recombination(*start, bounds=bounds, batch_size=whole),
        Swaps(*start, bounds=bounds, batch_size=whole),
    ]
    if gradients:
        # Gradients cost more than evaluations: at most about half of the batch.
        half = -(-cma.num_emitters // 2) * cma.batch_size
        for goal in ("target", "improvement", "objective"):
            emitters.append(GradientAscent(*start, goal=goal, bounds=bounds, batch_size=half))
    # Of sequences alone there are no Gaussians to adapt, and positions mean little: moves explore.
    discrete = None if cma.bounds is None else cma.bounds.discrete
    are_sequences = discrete is not None and (discrete.sequence > 0).all()
    exploring = [_LEAST if are_sequences else _EXPLORING] * 2
    return AdaptiveMixture(emitters, least=exploring + [_LEAST] * (len(emitters) - 2))
