"""Discount Model Search (Tjanaka et al., ICLR 2026): CMA-ES emitters guided by a discount model."""

from typing import Any

import equinox as eqx

from gloam import checks
from gloam.algorithms.algorithm import Algorithm
from gloam.archives import Archive
from gloam.discounts import Discount, DiscountModel
from gloam.emitters import CmaEmitters, Emitter, RestartRule, SelectionRule, Strategy


class DMS(Algorithm):
    """Discount Model Search.

    Args:
        archive: The cells to fill. Its ``f_min`` is where the discount model starts: set it at or
            below the lowest objective that you expect. A solution below it is no improvement, so
            with all objectives negative and the default ``f_min=0`` the search finds very little.
        x0: ``(sol,)`` starting solution.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts.
        num_emitters: Number of CMA-ES instances.
        batch_size: Solutions per instance and iteration.
        alpha: Archive learning rate: 1 explores only, 0 optimises only.
        restart: When emitters restart from a random elite; `BasicRestart` of
            `gloam.emitters` by default.
        selection: Which solutions are parents; `gloam.emitters.MuSelection` by default.
        lower, upper: Optional box of the solutions.
        num_empty_points: Number of empty cells trained to ``f_min`` in each iteration.
        num_init_points: Number of cells for the model's first fit.
        f_max: Largest objective you expect; scales the loss at which training stops.
        network: Any Equinox module from one row of measures to a number, instead of the MLP; see
            `gloam.discounts.networks`.
        learning_rate, train_batch_size, max_epochs, cutoff: Training, see `DiscountModel`.
        strategy: What the emitters' Gaussians are made of: ``CMAES()``, ``SepCMAES()`` or
            ``LMMAES()`` of `gloam.emitters`; by default the first for solutions of up to 1,000
            numbers and the last beyond.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1, f_min=-4)
        >>> algorithm = gloam.DMS(archive, x0=np.zeros(4), sigma0=0.2, f_max=0)
        >>> search = gloam.Search(algorithm, seed=1)
        >>> solutions = search.ask()
        >>> search.tell(objectives=-np.square(solutions).sum(axis=1), measures=solutions[:, :2])
        >>> search.elites.coverage > 0
        True
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
        alpha: float = 0.1,
        restart: RestartRule | None = None,
        selection: SelectionRule | None = None,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        num_empty_points: int = 100,
        num_init_points: int = 1000,
        f_max: float = 1.0,
        network: eqx.Module | None = None,
        learning_rate: float = 1e-3,
        train_batch_size: int = 32,
        max_epochs: int = 5,
        cutoff: float = 0.05,
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
        self.discount = DiscountModel(
            archive.lower,
            archive.upper,
            alpha=alpha,
            f_min=archive.f_min,
            f_max=f_max,
            network=network,
            shape=archive.measure_shape,
            num_empty_points=num_empty_points,
            num_init_points=num_init_points,
            learning_rate=learning_rate,
            train_batch_size=train_batch_size,
            max_epochs=max_epochs,
            cutoff=cutoff,
        )
