"""A control task from Gymnasium: policies that hold, swing and spin a pendulum.

    pip install 'gloam[examples]'
    python examples/control.py --workers 8 --iterations 100 --out control.png

A solution contains the weights of a small policy network. The objective is the return of one
episode. The measures are two descriptors of the trajectory: mean height and mean angular speed.
`gloam.interop.gymnasium` runs the episodes in worker processes.
"""

from pathlib import Path

import numpy as np
import tyro
from matplotlib.figure import Figure

import gloam
from gloam.interop.gymnasium import Episode, MLPPolicy, Rollouts

try:
    import gymnasium  # noqa: F401
except ImportError:
    raise SystemExit("This example needs Gymnasium: pip install 'gloam[examples]'") from None

NETWORK = MLPPolicy(observation_dim=3, low=[-2], high=[2], hidden=[6])


def torque(weights: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """Return the action of the network for height, side and speed (from -8 to 8)."""
    return NETWORK(weights, observation / [1, 1, 8])


def height_and_speed(episode: Episode) -> np.ndarray:
    """Return the means over the steps of an episode."""
    return episode.observations[1:, [0, 2]].mean(axis=0)


evaluate = Rollouts("Pendulum-v1", torque, height_and_speed)


def main(iterations: int = 100, out: Path = Path("control.png"), workers: int = 2) -> gloam.Elites:
    names = ["mean height", "mean speed"]
    archive = gloam.GridArchive((40, 40), [-1, -8], [1, 8], f_min=-2000, measure_names=names)
    algorithm = gloam.DMS(
        archive, np.zeros(NETWORK.solution_dim), 1.0, num_emitters=4, batch_size=20
    )
    pool = gloam.evaluators.Processes(workers)
    result = gloam.optimize(evaluate, algorithm, iterations, evaluator=pool)
    elites = result.elites
    print(elites)

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    gloam.plots.heatmap(elites, title="Return of each policy", ax=left)
    height, speed = elites.measures.T
    chosen = {"best return": elites.objectives, "lowest": -height, "fastest": abs(speed)}
    for name, values in chosen.items():
        episode = evaluate.play(elites.solutions[values.argmax()], seed=0)
        right.plot(episode.observations[1:, 0], label=name)
    right.set(xlabel="step", ylabel="height")
    right.legend()
    gloam.plots.save(figure, out)
    return elites


if __name__ == "__main__":
    tyro.cli(main)
