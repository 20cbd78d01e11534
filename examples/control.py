"""A control task of gymnasium: policies that hold, swing and spin a pendulum in every way they can.

    pip install 'gloam[examples]'
    python examples/control.py --workers 8 --iterations 100 --out control.png

A solution has the weights of a small network. One episode gives the return (the objective) and two
descriptors of the trajectory (the measures): mean height and mean speed of rotation. Episodes run
one at a time in worker processes.
"""

import functools
from pathlib import Path

import numpy as np
import tyro
from matplotlib.figure import Figure

import gloam

try:
    import gymnasium
except ImportError:
    raise SystemExit("This example needs gymnasium: pip install 'gloam[examples]'") from None

HIDDEN = 6
NUM_WEIGHTS = HIDDEN * 4 + HIDDEN + 1


@functools.cache  # one in each process
def environment() -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1")  # 200 steps


def torque(weights: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """A network with one hidden layer, from height, side and speed to a torque."""
    inputs = np.append(observation / [1, 1, 8], 1.0)
    hidden = np.tanh(weights[: HIDDEN * 4].reshape(HIDDEN, 4) @ inputs)
    return 2 * np.tanh(weights[-HIDDEN - 1 : -1] @ hidden + weights[-1:])


def episode(weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The return of one episode, and its ``(steps, 3)`` observations."""
    env, total, path, done = environment(), 0.0, [], False
    observation, _ = env.reset(seed=0)
    while not done:
        observation, reward, ended, cut, _ = env.step(torque(weights, observation))
        total, done = total + float(reward), ended or cut
        path.append(observation)
    return total, np.array(path)


def evaluate(weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Return, and mean height and speed, of one solution."""
    total, path = episode(weights)
    return total, path[:, [0, 2]].mean(axis=0)


def main(iterations: int = 100, out: Path = Path("control.png"), workers: int = 2) -> gloam.Elites:
    names = ["mean height", "mean speed"]
    archive = gloam.GridArchive((40, 40), [-1, -8], [1, 8], f_min=-2000, measure_names=names)
    algorithm = gloam.DMS(archive, np.zeros(NUM_WEIGHTS), 1.0, num_emitters=4, batch_size=20)
    pool = gloam.Processes(workers)
    result = gloam.optimize(evaluate, algorithm, iterations, per_solution=True, evaluator=pool)
    elites = result.elites
    print(elites)

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    gloam.plots.heatmap(elites, title="Return of each policy", ax=left)
    height, speed = elites.measures.T
    chosen = {"best return": elites.objectives, "lowest": -height, "fastest": abs(speed)}
    for name, values in chosen.items():
        right.plot(episode(elites.solutions[values.argmax()])[1][:, 0], label=name)
    right.set(xlabel="step", ylabel="height")
    right.legend()
    gloam.plots.save(figure, out)
    return elites


if __name__ == "__main__":
    tyro.cli(main)
