"""A custom network for the discount model, for a measure that is an angle.

    python examples/custom_network.py --iterations 300 --out network.png

The first measure is a direction, so -pi and pi are the same point. An MLP of the measures does not
know this. The network in this example takes sines and cosines of the direction. Any Equinox module
that maps one row of measures, scaled to [-1, 1], to a number can be used.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro

import gloam

JOINTS = 20


class Periodic(eqx.Module):
    """An MLP of sines and cosines of the first measure, and of the second measure."""

    mlp: eqx.nn.MLP

    def __init__(self, *, key: jax.Array):
        self.mlp = eqx.nn.MLP(5, "scalar", width_size=64, depth=2, key=key)

    def __call__(self, measures: jax.Array) -> jax.Array:
        turns = jnp.pi * measures[0] * jnp.array([1.0, 2.0])
        return self.mlp(jnp.concatenate([jnp.sin(turns), jnp.cos(turns), measures[1:]]))

    def reinitialized(self, *, key: jax.Array) -> "Periodic":
        """Return the network with new weights: each seed starts with its own."""
        return Periodic(key=key)


def evaluate(joints: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return how evenly an arm bends (objective), and the direction and distance of its hand."""
    angles = jnp.cumsum(joints, axis=1)
    x, y = jnp.cos(angles).mean(axis=1), jnp.sin(angles).mean(axis=1)
    return 1 - jnp.var(joints, axis=1), jnp.stack([jnp.arctan2(y, x), jnp.hypot(x, y)], axis=1)


def main(iterations: int = 300, out: Path = Path("network.png"), seeds: int = 2) -> None:
    archive = gloam.GridArchive(shape=(80, 40), lower=[-np.pi, 0], upper=[np.pi, 1])
    networks = {"MLP (default)": None, "Periodic": Periodic(key=jax.random.key(0))}
    metrics = {}
    for name, network in networks.items():
        algorithm = gloam.DMS(archive, np.zeros(JOINTS), sigma0=0.2, network=network)
        log_every = max(1, iterations // 50)
        result = gloam.run(evaluate, algorithm, iterations, seeds=seeds, log_every=log_every)
        metrics[name] = result.metrics
        print(name, [elites.qd_score for elites in result.elites_by_seed.values()])
    gloam.plots.save(gloam.plots.curves(metrics, title="Two networks, one archive"), out)


if __name__ == "__main__":
    tyro.cli(main)
