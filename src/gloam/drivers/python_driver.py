"""A `Search` for each seed and an evaluation in Python, as a driver."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.drivers.evaluation import evaluation_parts
from gloam.drivers.search import Search
from gloam.drivers.starts import start_of
from gloam.records import SearchState


class PythonDriver:
    """Asks, evaluates in Python and tells, one seed after the other."""

    kind: Literal["fused", "ask-tell"] = "ask-tell"

    def __init__(self, evaluate: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.expect(
            callable(evaluate),
            "evaluate",
            "a function of a batch of solutions",
            type(evaluate).__name__,
        )
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        self.evaluate = evaluate
        self.seeds = seeds
        self.batch = algorithm.emitter.num_solutions
        self.searches = [
            Search(algorithm, seed, x0=start_of(evaluate, algorithm, seed)) for seed in seeds
        ]

    @property
    def state(self) -> SearchState:
        """The states of all seeds, as the fused driver has them: they share the iteration."""
        states = [search.state for search in self.searches]
        stacked = jax.tree.map(_stack, *states)
        return eqx.tree_at(lambda s: s.iteration, stacked, states[0].iteration)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return self.searches[0].iteration

    def start(self) -> None:
        """Begin at iteration 0, where a new `Search` is."""

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        one, number = self.searches[0].state, len(self.seeds)
        shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), one)
        state = read(eqx.tree_at(lambda s: s.iteration, shapes, one.iteration))
        # Each seed has arrays of its own, because they are donated to the next iteration.
        iterations = jnp.stack([state.iteration] * number)
        state = eqx.tree_at(lambda s: s.iteration, state, iterations)
        for place, search in enumerate(self.searches):
            search.state = jax.tree.map(lambda leaf, i=place: leaf[i], state)

    def advance(self, iterations: int) -> None:
        """Ask, evaluate and tell some times.

        No seed learns before the evaluations of all seeds have been checked: when one of them
        raises an error, all seeds are at the iteration before.
        """
        for _ in range(iterations):
            told = []
            for search in self.searches:
                objectives, measures, fields = evaluation_parts(self.evaluate(search.ask()))
                told.append(search.checked(objectives, measures, None, fields))
            for search, one in zip(self.searches, told, strict=True):
                search.learn(one)
        jax.block_until_ready([search.state.iteration for search in self.searches])

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()


def _stack(*leaves: Any) -> Any:
    """One array of all seeds' arrays; on the host, where they are written from.

    That of one seed is not copied: it may be large.
    """
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
