"""Measure gloam's discount model for pyribs against pyribs' own, on pyribs' sphere with DMS.

Both are used with the same `DiscountArchive`, scheduler and emitters of pyribs. The time of
`init_discount_model`, training and inference is measured separately from the rest of the loop.

    python benchmarks/interop.py --iterations 100 --threads 2
"""

import argparse
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")

import torch  # noqa: E402
from ribs.archives import DiscountArchive, GridArchive  # noqa: E402
from ribs.discount_models import MLP  # noqa: E402
from ribs.discount_models import DiscountModelManager as PyribsManager  # noqa: E402
from ribs.emitters import EvolutionStrategyEmitter  # noqa: E402
from ribs.schedulers import Scheduler  # noqa: E402

from gloam.interop.ribs import DiscountModelManager  # noqa: E402

SIZE, MEASURES = 100, 2
EDGE = SIZE / MEASURES * 5.12


def sphere(solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the sphere with linear projection of pyribs' examples, objectives from 0 to 1."""
    shift = 0.4 * 5.12
    worst = (5.12 + shift) ** 2 * SIZE
    objectives = 1 - np.square(solutions - shift).sum(axis=1) / worst
    inside = np.where(np.abs(solutions) <= 5.12, solutions, 5.12 / solutions)
    halves = np.split(inside, MEASURES, axis=1)
    return objectives, np.stack([half.sum(axis=1) for half in halves], axis=1)


class Timed:
    """A manager that measures its own time, separately for calls that compile."""

    def __init__(self, manager):
        self.manager, self.seconds = manager, {"train": [], "infer": []}

    def training_loop(self, measures, targets):
        """Train, and record the time and the number of epochs."""
        before = time.perf_counter()
        losses = self.manager.training_loop(measures, targets)
        self.seconds["train"].append((time.perf_counter() - before, len(losses)))
        return losses

    def inference(self, measures, batch_size=None):
        """Predict, and record the time."""
        before = time.perf_counter()
        found = self.manager.inference(measures, batch_size)
        self.seconds["infer"].append((time.perf_counter() - before, 1))
        return found


def run(kind, iterations: int, seed: int) -> tuple[Timed, float, float]:
    """Return the manager's times, the QD score, and the seconds of the whole loop."""
    torch.manual_seed(seed)
    network = MLP([(MEASURES, 128), (128, 128), (128, 1)], torch.nn.ReLU)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    manager = Timed(
        kind(
            network,
            optimizer,
            torch.device("cpu"),
            train_epochs=5,
            train_cutoff_loss=0.05,
            train_batch_size=32,
            normalize_measures="negative_one_one",
            measures_low=np.full(MEASURES, -EDGE),
            measures_high=np.full(MEASURES, EDGE),
        )
    )
    result = GridArchive(solution_dim=SIZE, dims=(100, 100), ranges=[(-EDGE, EDGE)] * MEASURES)
    guide = DiscountArchive(
        solution_dim=SIZE,
        measure_dim=MEASURES,
        learning_rate=0.1,
        threshold_min=0.0,
        discount_model_manager=manager,
        result_archive=result,
        init_train_points=1000,
        empty_points=100,
        seed=seed,
    )
    # pyribs 0.12's DiscountArchive cannot sample the elite at which an emitter restarts.
    guide.sample_elites = result.sample_elites
    began = time.perf_counter()
    guide.init_discount_model()
    emitters = [
        EvolutionStrategyEmitter(
            guide, x0=np.zeros(SIZE), sigma0=0.5, ranker="imp", batch_size=36, seed=seed + number
        )
        for number in range(15)
    ]
    scheduler = Scheduler(guide, emitters, result_archive=result)
    for _ in range(iterations):
        scheduler.tell(*sphere(scheduler.ask()))
        guide.train_discount_model()
    return manager, float(result.stats.qd_score), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    medians = {}
    for name, kind in (("pyribs (PyTorch)", PyribsManager), ("gloam (JAX)", DiscountModelManager)):
        manager, score, whole = run(kind, chosen.iterations, chosen.seed)
        # The first two calls of each kind compile or allocate.
        train, infer = (
            [seconds / epochs for seconds, epochs in manager.seconds[part][2:]]
            for part in ("train", "infer")
        )
        medians[name] = np.median(train), np.median(infer)
        print(
            f"{name}: {1e3 * medians[name][0]:.2f} ms for an epoch of training, "
            f"{1e3 * medians[name][1]:.2f} ms for an inference (medians), "
            f"{whole:.1f} s for {chosen.iterations} iterations in all, QD score {score:,.0f}"
        )
    theirs, ours = medians.values()
    print(f"training {theirs[0] / ours[0]:.1f} times as fast, ", end="")
    print(f"inference {theirs[1] / ours[1]:.1f} times as fast")


if __name__ == "__main__":
    main()
