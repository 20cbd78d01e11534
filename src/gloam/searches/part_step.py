"""The steps of an iteration for one part of the emitter, for asynchronous search.

A `gloam.emitters.Divisible` emitter has parts, such as the CMA-ES instances of
`gloam.emitters.CmaEmitters`; any other emitter is one part. Each part asks for its solutions and
adapts when they are evaluated, independently of the others. Results enter the store as they arrive,
and the discount is trained whenever a whole batch has arrived. Archive, discount and steps are
those of `gloam.step`, and all functions are pure.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import step
from gloam._tools import draws
from gloam.algorithms import Algorithm
from gloam.archives.store import add as add_to_store
from gloam.archives.store import num_unique_cells
from gloam.diagnostics import diagnostics
from gloam.emitters import Divisible, Emitter
from gloam.records import Added, Batch, Proposal, SearchState, StepInfo

WithPart = tuple[Algorithm, Emitter]
"""An algorithm, and an emitter like one part of its emitter."""


def divided(emitter: Emitter) -> tuple[int, Emitter]:
    """Return the number of parts of an emitter, and an emitter like one of them."""
    number = emitter.num_parts if isinstance(emitter, Divisible) else 1
    return number, emitter.part(number) if isinstance(emitter, Divisible) else emitter


def ask_part(
    pair: WithPart, state: SearchState, index: Int[Array, ""], generation: Int[Array, ""]
) -> Proposal:
    """ASK: propose the next solutions of one part.

    Args:
        pair: The algorithm and its part.
        state: State of the search.
        index: Index of the part.
        generation: Number of times that this part has adapted.
    """
    return step.ask(_alone(pair), _view(pair, state, index, generation))


def add_rows(
    pair: WithPart,
    state: SearchState,
    solutions: Float[Array, "batch sol"],
    evaluation: step.Evaluation,
    cells: Int[Array, " batch"] | None,
    is_row: Bool[Array, " batch"],
) -> tuple[SearchState, Batch, Added]:
    """ADD: add results to the store, with the same outcome as one after the other.

    ``is_row`` is false for padding.

    Returns:
        The state, the results with failed rows masked, and which of them were accepted and filled
        a cell when they were added in order.
    """
    algorithm, _ = pair
    batch = step.masked_batch(algorithm, solutions, evaluation, cells)
    assert batch.violations is not None, "results of asynchronous searches have violations"
    valid, is_infeasible = batch.valid & is_row, (batch.violations > 0) & is_row
    is_far = jnp.zeros_like(valid) if batch.is_far is None else batch.is_far
    batch = dataclasses.replace(batch, valid=valid, is_far=is_far)
    store, added = add_to_store(state.store, batch)
    is_earlier = jnp.tril(batch.cells[:, None] == batch.cells, -1) & valid
    best_earlier = jnp.max(jnp.where(is_earlier, batch.objectives, -jnp.inf), axis=1)
    accepted = added.accepted & (batch.objectives > best_earlier)
    before = jnp.maximum(added.before, best_earlier)
    filled = valid & (before == -jnp.inf)
    infeasible = state.infeasible + jnp.sum(is_infeasible, dtype=jnp.int32)
    failed = state.failed + jnp.sum(is_row & ~valid & ~is_infeasible, dtype=jnp.int32)
    in_order = Added(
        accepted=accepted, filled=filled, unique_cells=added.unique_cells, before=before
    )
    counts = {"failed": failed, "infeasible": infeasible}
    return dataclasses.replace(state, store=store, **counts), batch, in_order


def rescaled(pair: WithPart, state: SearchState) -> SearchState:
    """Return the state rescaled to its elites, see `gloam.step.rescaled`."""
    return step.rescaled(pair[0], state)


def adapt_part(
    pair: WithPart,
    state: SearchState,
    index: Int[Array, ""],
    generation: Int[Array, ""],
    aux: Any,
    batch: Batch,
    accepted: Bool[Array, " batch"],
    filled: Bool[Array, " batch"],
    before: Float[Array, " batch"],
) -> SearchState:
    """SCORE, ADAPT: let one part adapt to its solutions, whose results are in the store.

    Rows that are not valid failed, or did not arrive in time.
    """
    algorithm, alone = pair[0], _alone(pair)
    # Here and not where results are added, because how many are added at a time may not matter.
    state = step.rescaled(algorithm, state)
    view = _view(pair, state, index, generation)
    _, scored = step.score(alone, view, batch)
    proposal = Proposal(batch.solutions, aux[0], targets=aux[1])
    added = Added(
        accepted=accepted, filled=filled, unique_cells=jnp.zeros((), jnp.int32), before=before
    )
    emitter = step.adapt(alone, view, proposal, batch, scored, added)
    if isinstance(algorithm.emitter, Divisible):
        number = algorithm.emitter.num_parts
        emitter = algorithm.emitter.with_part_state(state.emitter, index, number, emitter)
    return dataclasses.replace(state, emitter=emitter)


def train(pair: WithPart, state: SearchState, batch: Batch) -> tuple[SearchState, StepInfo]:
    """SCORE, TRAIN: train the discount on a batch of results, which ends an iteration."""
    algorithm, _ = pair
    state = step.rescaled(algorithm, state)
    seen, scored = step.score(algorithm, state, batch)
    learned, fit = step.train(algorithm, state, seen, scored)
    unique_cells = num_unique_cells(batch, algorithm.archive.num_cells)
    info, low = diagnostics(algorithm, state, state.emitter, batch, seen, fit, unique_cells)
    finished = state.iteration + 1
    return dataclasses.replace(state, iteration=finished, discount=learned, low=low), info


def _alone(pair: WithPart) -> Algorithm:
    """Return the algorithm with one part as its emitter."""
    algorithm, part = pair
    return eqx.tree_at(lambda a: a.emitter, algorithm, part)


def _view(
    pair: WithPart, state: SearchState, index: Int[Array, ""], generation: Int[Array, ""]
) -> SearchState:
    """Return the state from the view of one part: its own key, generation and emitter."""
    key = _part_key(state.key, index)
    emitter, emitter_state = pair[0].emitter, state.emitter
    if isinstance(emitter, Divisible):
        emitter_state = emitter.part_state(emitter_state, index, emitter.num_parts)
    return dataclasses.replace(state, key=key, iteration=generation, emitter=emitter_state)


def evaluation_key(key: PRNGKeyArray, index: int, generation: int) -> PRNGKeyArray:
    """Return the random key for the evaluations of one part, as `gloam.step.evaluation_key`.

    Args:
        key: Root key of the search.
        index: Index of the part.
        generation: Number of times that this part has adapted.
    """
    return draws.evaluation_key(_part_key(key, index), generation)


def _part_key(key: PRNGKeyArray, index: Int[Array, ""] | int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(key, draws.PARTS), index)
