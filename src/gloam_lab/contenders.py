"""Searches to compare: gloam, pyribs and QDax on the same problem with the same settings.

pyribs, PyTorch and QDax are imported when a contender is built.
"""

# Peers need not be installed.
# pyright: reportMissingImports=false

import dataclasses
import itertools
from abc import ABC, abstractmethod
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gloam import archives, discounts, emitters
from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.domains import LinearProjection
from gloam.runs.fused_driver import FusedDriver
from gloam.searches.search import Search
from gloam_lab.presets import paper_algorithm

COMPARED_ALGORITHMS = ("dms-paper", "cma-mae", "map-elites-line")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One of the paper's algorithms on LP (Sphere), for all contenders.

    Args:
        name: Name of the algorithm, one of `COMPARED_ALGORITHMS`.
        measure_dim: Number of measures. 2 uses a grid, others 10,000 centroids.
        centroids_dir: Folder with ``lp_{k}d.npy``. By default centroids are computed by k-means.
    """

    name: str
    measure_dim: int
    centroids_dir: Path | None = None

    def __post_init__(self) -> None:
        expected = f"one of {', '.join(COMPARED_ALGORITHMS)}"
        checks.expect(self.name in COMPARED_ALGORITHMS, "algorithm", expected, repr(self.name))

    @cached_property
    def domain(self) -> LinearProjection:
        """The domain in JAX."""
        file = None
        if self.centroids_dir is not None and self.measure_dim != 2:
            file = self.centroids_dir / f"lp_{self.measure_dim}d.npy"
        return LinearProjection(self.measure_dim, centroids=file)

    @cached_property
    def algorithm(self) -> Algorithm:
        """The algorithm of gloam, from which the others take their settings."""
        return paper_algorithm(self.name, self.domain)

    @cached_property
    def x0(self) -> np.ndarray:
        """First solution."""
        return np.asarray(self.domain.x0, np.float64)

    def evaluate(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate the domain in NumPy, as a user of ask and tell would write it."""
        edge, shift = 5.12, 0.4 * 5.12
        worst = solutions.shape[1] * (edge + shift) ** 2
        objectives = 1 - np.square(solutions - shift).sum(axis=1) / worst
        inside = np.abs(solutions) <= edge
        clipped = np.where(inside, solutions, edge / np.where(inside, 1, solutions))
        return objectives, clipped.reshape(len(solutions), self.measure_dim, -1).sum(axis=2)


class Contender(ABC):
    """A search that can be timed."""

    name: str
    install: str = ""
    """How to install the library."""
    num_cells: int
    """Number of cells of the archive, as the contender reports it."""
    evaluations: int = 0
    """Number of solutions evaluated so far."""

    @abstractmethod
    def __init__(self, problem: Problem, seed: int):
        """Build the search, ready to run."""

    @abstractmethod
    def advance(self, iterations: int) -> None:
        """Run a number of iterations to their end."""

    @abstractmethod
    def outcome(self) -> tuple[float, int]:
        """Return the QD score, and the number of training epochs in the last iteration."""


class GloamFused(Contender):
    """gloam with the domain inside the compiled loop."""

    name = "gloam fused"

    def __init__(self, problem: Problem, seed: int):
        self._driver = FusedDriver(problem.domain, problem.algorithm, [seed])
        self._driver.start()
        self.num_cells = self._driver.checkpoint().store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run a number of iterations."""
        self._driver.advance(iterations)
        self.evaluations = self._driver.metrics()[-1][0]["evaluations"]

    def outcome(self) -> tuple[float, int]:
        """Return QD score and epochs."""
        (metrics,) = self._driver.metrics()[-1]
        return metrics["qd_score"], metrics["epochs"]


class GloamAskTell(Contender):
    """gloam with the same NumPy evaluation as pyribs."""

    name = "gloam ask-tell"

    def __init__(self, problem: Problem, seed: int):
        self._search = Search(problem.algorithm, seed=seed)
        self._evaluate = problem.evaluate
        self.num_cells = self._search.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run a number of iterations."""
        for _ in range(iterations):
            solutions = self._search.ask()
            self._search.tell(*self._evaluate(solutions))
            self.evaluations += len(solutions)
        jax.block_until_ready(self._search.state)

    def outcome(self) -> tuple[float, int]:
        """Return QD score and epochs."""
        metrics = self._search.metrics()
        return metrics["qd_score"], metrics["epochs"]


class Pyribs(Contender):
    """pyribs with the NumPy evaluation, in float64, its default."""

    name = "pyribs"
    install = "pip install 'gloam[bench]'"

    def __init__(self, problem: Problem, seed: int):
        from ribs.emitters import EvolutionStrategyEmitter, IsoLineEmitter
        from ribs.schedulers import Scheduler

        self._evaluate = problem.evaluate
        self._elites = _pyribs_archive(problem)
        self.num_cells = int(self._elites.cells)
        self._trained: Any = None
        self._epochs = 0
        # Of any type, because settings of gloam may be arrays or None; those of the paper are not.
        emitter: Any = problem.algorithm.emitter
        if isinstance(problem.algorithm.emitter, emitters.Variation):
            line = IsoLineEmitter(
                self._elites,
                iso_sigma=emitter.sigma0,
                line_sigma=emitter.line_sigma,
                x0=problem.x0,
                batch_size=emitter.batch_size,
                seed=seed,
            )
            self._scheduler = Scheduler(self._elites, [line])
            return
        assert isinstance(problem.algorithm.emitter, emitters.CmaEmitters)
        discount = problem.algorithm.discount
        if isinstance(discount, discounts.Thresholds):
            options = {"learning_rate": discount.alpha, "threshold_min": discount.floor}
            ranking = _pyribs_archive(problem, **options)
        else:
            ranking = self._trained = _pyribs_discount_archive(problem, self._elites, seed)
        seeds = np.random.SeedSequence(seed).generate_state(emitter.num_emitters)
        instances = [
            EvolutionStrategyEmitter(
                ranking,
                x0=problem.x0,
                sigma0=emitter.sigma0,
                ranker="imp",
                selection_rule="mu",
                restart_rule=getattr(emitter.restart, "iterations", "basic"),
                batch_size=emitter.batch_size,
                seed=int(instance_seed),
            )
            for instance_seed in seeds
        ]
        self._scheduler = Scheduler(ranking, instances, result_archive=self._elites)

    def advance(self, iterations: int) -> None:
        """Run a number of iterations."""
        for _ in range(iterations):
            solutions = self._scheduler.ask()
            self._scheduler.tell(*self._evaluate(solutions))
            if self._trained is not None:
                self._epochs = self._trained.train_discount_model()["epochs"]
            self.evaluations += len(solutions)

    def outcome(self) -> tuple[float, int]:
        """Return QD score and epochs."""
        return float(self._elites.stats.qd_score), self._epochs


def _pyribs_archive(problem: Problem, **options: Any) -> Any:
    """Return an archive with the cells of gloam's."""
    from ribs.archives import CVTArchive, GridArchive

    archive, size = problem.algorithm.archive, len(problem.x0)
    box = np.stack([archive.lower, archive.upper], axis=1).tolist()
    if isinstance(archive, archives.GridArchive):
        return GridArchive(solution_dim=size, dims=archive.shape, ranges=box, **options)
    assert isinstance(archive, archives.CVTArchive)
    points = np.asarray(archive.centroids, float)
    return CVTArchive(solution_dim=size, centroids=points, ranges=box, **options)


def _pyribs_discount_archive(problem: Problem, elites: Any, seed: int) -> Any:
    """Return the archive of DMS, which ranks solutions by a discount model."""
    import torch
    from ribs.archives import DiscountArchive
    from ribs.discount_models import MLP, DiscountModelManager

    discount, archive = problem.algorithm.discount, problem.algorithm.archive
    assert isinstance(discount, discounts.DiscountModel)
    assert isinstance(discount.network, discounts.MLP)
    torch.manual_seed(seed)
    weights = discount.network.weights
    sizes = [weights[0].shape[0], *(weight.shape[1] for weight in weights)]
    network: Any = MLP(list(itertools.pairwise(sizes)), torch.nn.ReLU)
    manager = DiscountModelManager(
        network,
        torch.optim.Adam(network.parameters(), lr=discount.learning_rate),
        torch.device("cpu"),
        train_epochs=discount.max_epochs,
        train_cutoff_loss=discount.cutoff,
        train_batch_size=discount.train_batch_size,
        normalize_measures="negative_one_one",
        measures_low=np.asarray(archive.lower, float),
        measures_high=np.asarray(archive.upper, float),
    )
    assert discount.floor is not None
    ranking = DiscountArchive(
        solution_dim=len(problem.x0),
        measure_dim=problem.measure_dim,
        learning_rate=discount.alpha,
        threshold_min=discount.floor,
        result_archive=elites,
        discount_model_manager=manager,
        seed=seed,
        init_train_points=discount.num_init_points,
        empty_points=discount.num_empty_points,
    )
    # pyribs 0.12's DiscountArchive cannot sample the elite at which an emitter restarts.
    ranking.sample_elites = elites.sample_elites
    ranking.init_discount_model()
    return ranking


class Qdax(Contender):
    """QDax in one compiled loop, with the JAX domain. A grid becomes the centers of its cells."""

    name = "QDax"
    install = "pip install qdax"

    def __init__(self, problem: Problem, seed: int):
        from qdax.core.emitters.mutation_operators import isoline_variation
        from qdax.core.emitters.standard_emitters import MixingEmitter
        from qdax.core.map_elites import MAPElites

        emitter, archive = problem.algorithm.emitter, problem.algorithm.archive
        assert isinstance(emitter, emitters.Variation)
        domain, self._batch_size = problem.domain, emitter.batch_size
        vary = partial(isoline_variation, iso_sigma=emitter.sigma0, line_sigma=emitter.line_sigma)
        search = MAPElites(
            lambda solutions, key: (*domain(solutions), {}),
            MixingEmitter(None, vary, 1.0, emitter.batch_size),
            lambda repertoire: {},
        )
        cells = jnp.arange(archive.num_cells, dtype=jnp.int32)
        key, start = jax.random.split(jax.random.key(seed))
        repertoire, state, _ = search.init(domain.x0[None], archive.centers_of(cells), start)
        self.num_cells = archive.num_cells
        self._carry = (repertoire, state, key)

        def loop(carry: Any, iterations: Any) -> Any:
            return jax.lax.fori_loop(
                0, iterations, lambda _, carry: search.scan_update(carry, None)[0], carry
            )

        self._loop = jax.jit(loop, donate_argnums=0)

    def advance(self, iterations: int) -> None:
        """Run a number of iterations."""
        self._carry = jax.block_until_ready(self._loop(self._carry, iterations))
        self.evaluations += iterations * self._batch_size

    def outcome(self) -> tuple[float, int]:
        """Return the QD score, and no epochs: only DMS trains."""
        fitnesses = self._carry[0].fitnesses
        return float(jnp.sum(jnp.where(jnp.isfinite(fitnesses), fitnesses, 0.0))), 0


PEERS: dict[str, tuple[type[Contender], ...]] = {
    "dms-paper": (Pyribs,),
    "cma-mae": (Pyribs,),
    "map-elites-line": (Pyribs, Qdax),
}
"""Other libraries that have an algorithm. The first one is the reference for the work done."""
