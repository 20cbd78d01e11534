"""pyribs as a contender: its own DMS, CMA-MAE and MAP-Elites (line), set up as ours are."""

import itertools
from typing import Any

import numpy as np
import torch
from ribs.archives import CVTArchive, DiscountArchive, GridArchive
from ribs.discount_models import MLP, DiscountModelManager
from ribs.emitters import EvolutionStrategyEmitter, IsoLineEmitter
from ribs.schedulers import Scheduler

from gloam import archives, discounts, emitters
from gloam.experiments.comparison import Contender, Problem


class Pyribs(Contender):
    """pyribs around the NumPy evaluation, in float64 as it is by default."""

    name = "pyribs"

    def __init__(self, problem: Problem, seed: int):
        self.problem = problem
        self.elites = _archive(problem)
        self.num_cells = int(self.elites.cells)
        self._trained: Any = None
        self._epochs = 0
        emitter = problem.ours.emitter
        if isinstance(emitter, emitters.Variation):
            varying = IsoLineEmitter(
                self.elites,
                iso_sigma=emitter.sigma,
                line_sigma=emitter.line_sigma,
                x0=problem.x0,
                batch_size=emitter.batch_size,
                seed=seed,
            )
            self.scheduler = Scheduler(self.elites, [varying])
            return
        assert isinstance(emitter, emitters.CmaEmitters)
        guide = self._guide(seed)
        restart = emitter.restart
        seeds = np.random.SeedSequence(seed).generate_state(emitter.num_emitters)
        instances = [
            EvolutionStrategyEmitter(
                guide,
                x0=problem.x0,
                sigma0=emitter.sigma0,
                ranker="imp",
                selection_rule="mu",
                restart_rule=getattr(restart, "iterations", "basic"),
                batch_size=emitter.batch_size,
                seed=int(own),
            )
            for own in seeds
        ]
        self.scheduler = Scheduler(guide, instances, result_archive=self.elites)

    def _guide(self, seed: int) -> Any:
        """The archive that ranks solutions: thresholds, or a discount model."""
        discount, archive = self.problem.ours.discount, self.problem.ours.archive
        if isinstance(discount, discounts.Thresholds):
            return _archive(
                self.problem, learning_rate=discount.alpha, threshold_min=discount.floor
            )
        assert isinstance(discount, discounts.DiscountModel)
        assert isinstance(discount.network, discounts.MLP)
        torch.manual_seed(seed)
        weights = discount.network.weights
        sizes = [weights[0].shape[0], *(weight.shape[1] for weight in weights)]
        network = MLP(list(itertools.pairwise(sizes)), torch.nn.ReLU)
        optimizer = torch.optim.Adam(network.parameters(), lr=discount.learning_rate)
        model = DiscountModelManager(
            network,
            optimizer,
            torch.device("cpu"),
            train_epochs=discount.max_epochs,
            train_cutoff_loss=discount.cutoff,
            train_batch_size=discount.train_batch_size,
            normalize_measures="negative_one_one",
            measures_low=np.asarray(archive.lower, float),
            measures_high=np.asarray(archive.upper, float),
        )
        guide = DiscountArchive(
            solution_dim=len(self.problem.x0),
            measure_dim=self.problem.measure_dim,
            learning_rate=discount.alpha,
            threshold_min=discount.floor,
            result_archive=self.elites,
            discount_model_manager=model,
            seed=seed,
            init_train_points=discount.num_init_points,
            empty_points=discount.num_empty_points,
        )
        # pyribs 0.12's DiscountArchive cannot give the elite that a restart starts from.
        guide.sample_elites = self.elites.sample_elites
        guide.init_discount_model()
        self._trained = guide
        return guide

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            solutions = self.scheduler.ask()
            self.scheduler.tell(*self.problem.evaluate(solutions))
            if self._trained is not None:
                self._epochs = self._trained.train_discount_model()["epochs"]
            self.evaluations += len(solutions)

    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self._epochs

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return float(self.elites.stats.qd_score)


def _archive(problem: Problem, **options: float) -> Any:
    """The same cells as gloam's."""
    ours, size = problem.ours.archive, len(problem.x0)
    lower, upper = np.asarray(ours.lower, float), np.asarray(ours.upper, float)
    box = list(zip(lower, upper, strict=True))
    if isinstance(ours, archives.GridArchive):
        return GridArchive(solution_dim=size, dims=ours.shape, ranges=box, **options)
    assert isinstance(ours, archives.CVTArchive)
    points = np.asarray(ours.centroids, float)
    return CVTArchive(solution_dim=size, centroids=points, ranges=box, **options)
