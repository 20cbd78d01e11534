"""A control task of gymnasium: policies that reach the hill's top in every way they can.

    pip install 'gymnasium[classic-control]'
    python examples/control.py --workers 8 --iterations 60 --out control.png

A solution has the weights of a small network. One episode gives the return (the objective) and two
descriptors of the trajectory (the measures): how far the car went to the left, and when it arrived.
Episodes run one at a time in worker processes.
"""

import functools
from pathlib import Path

import numpy as np
import tyro

import gloam

try:
    import gymnasium
except ImportError:
    raise SystemExit("This example needs gymnasium: pip install gymnasium") from None

HIDDEN, STEPS = 6, 200
NUM_WEIGHTS = HIDDEN * 3 + HIDDEN + 1


@functools.cache  # one in each process
def environment() -> gymnasium.Env:
    return gymnasium.make("MountainCarContinuous-v0", max_episode_steps=STEPS)


def action(weights: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """A network with one hidden layer, from position and speed to a force."""
    inputs = np.array([observation[0] + 0.5, 15 * observation[1], 1.0])
    hidden = np.tanh(weights[: HIDDEN * 3].reshape(HIDDEN, 3) @ inputs)
    return np.tanh(hidden @ weights[HIDDEN * 3 : -1] + weights[-1], dtype=np.float32)[None]


def episode(weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Return of one episode, and the car's positions."""
    env, total, positions, done = environment(), 0.0, [], False
    observation, _ = env.reset(seed=0)
    while not done:
        observation, reward, terminated, truncated, _ = env.step(action(weights, observation))
        total, done = total + float(reward), terminated or truncated
        positions.append(observation[0])
    return total, np.array(positions)


def evaluate(weights: np.ndarray) -> tuple[float, list[float]]:
    """Return, and leftmost position and time of arrival; one solution at a time."""
    total, positions = episode(weights)
    return total, [positions.min(), len(positions)]


def picture(elites: gloam.Elites, out: Path) -> None:
    figure = gloam.plots.archive_figure(elites, title="Policies by their trajectories")
    figure.axes[0].set(xlabel="leftmost position", ylabel="arrival (step)", aspect="auto")
    gloam.plots.save(figure, out)


def main(iterations: int = 60, out: Path = Path("control.png"), workers: int = 2) -> gloam.Elites:
    archive = gloam.GridArchive(shape=(30, 30), lower=[-1.2, 50], upper=[-0.4, STEPS + 1])
    algorithm = gloam.DMS(archive, np.zeros(NUM_WEIGHTS), 0.5, num_emitters=4, batch_size=20)
    pool = gloam.Processes(workers)
    result = gloam.optimize(evaluate, algorithm, iterations, per_solution=True, evaluator=pool)
    print(result.elites)
    picture(result.elites, out)
    return result.elites


if __name__ == "__main__":
    tyro.cli(main)
