"""The verbs of an iteration for one part of the emitter: what an asynchronous search is made of.

The emitter has parts (the CMA-ES instances of `gloam.emitters.CmaEmitters`). Each asks for its
solutions, and adapts when they are evaluated, whatever the others do. Results enter the store as
they come, and the discount is trained whenever a whole batch of them has come. Archive, discount
and verbs are those of `gloam.step`; all functions are pure.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gloam import step
from gloam.algorithms import Algorithm
from gloam.archives.store import num_unique_cells
from gloam.records import Batch, Proposal, SearchState, StepInfo

# No iteration has this number, so the parts share no randomness with the training.
_PARTS = 2**32 - 2


def with_emitter(algorithm: Algorithm, emitter: Any) -> Algorithm:
    """The algorithm with another emitter."""
    return eqx.tree_at(lambda a: a.emitter, algorithm, emitter)


def ask_part(
    algorithm: Algorithm,
    part: Any,
    state: SearchState,
    index: Int[Array, ""],
    generation: Int[Array, ""],
) -> Proposal:
    """ASK: the next solutions of one part.

    Args:
        algorithm: The algorithm.
        part: ``algorithm.emitter.part()``.
        state: State of the search.
        index: Which part.
        generation: How often this part has adapted.
    """
    return step.ask(with_emitter(algorithm, part), _view(algorithm, state, index, generation))


def add_rows(
    algorithm: Algorithm,
    state: SearchState,
    solutions: Float[Array, "batch sol"],
    evaluation: step.Evaluation,
    cells: Int[Array, " batch"] | None,
    is_row: Bool[Array, " batch"],
) -> tuple[SearchState, Batch, Bool[Array, " batch"], Bool[Array, " batch"]]:
    """ADD: put results into the store, to the same end as if they were added one after the other.

    ``is_row`` is false for padding.

    Returns:
        The state, the results with failed rows masked, which of them improved the archive as it was
        before them, and which filled an empty cell.
    """
    batch = step.evaluated(algorithm, solutions, evaluation, cells)
    valid = batch.valid & is_row
    batch = eqx.tree_at(lambda b: b.valid, batch, valid)
    was_empty = state.store.objectives[batch.cells] == -jnp.inf
    state, added = step.put(algorithm, state, batch)
    is_earlier = jnp.tril(batch.cells[:, None] == batch.cells, -1) & valid
    best_earlier = jnp.max(jnp.where(is_earlier, batch.objectives, -jnp.inf), axis=1)
    improved = added.improved & (batch.objectives > best_earlier)
    filled = valid & was_empty & ~jnp.any(is_earlier, axis=1)
    failed = state.failed + jnp.sum(is_row & ~valid, dtype=jnp.int32)
    return dataclasses.replace(state, failed=failed), batch, improved, filled


def adapt_part(
    algorithm: Algorithm,
    part: Any,
    state: SearchState,
    index: Int[Array, ""],
    generation: Int[Array, ""],
    memory: Any,
    batch: Batch,
    improved: Bool[Array, " batch"],
    filled: Bool[Array, " batch"],
) -> SearchState:
    """SCORE, ADAPT: let one part learn from its solutions, whose results are in the store.

    Rows that are not valid failed, or were not waited for.
    """
    view, alone = _view(algorithm, state, index, generation), with_emitter(algorithm, part)
    _, scored = step.score(alone, view, batch)
    proposal = Proposal(batch.solutions, memory)
    adapted = step.adapt(alone, view, proposal, batch, scored, improved, filled)
    emitter = algorithm.emitter.with_part_state(state.emitter, index, adapted)
    return dataclasses.replace(state, emitter=emitter)


def train(algorithm: Algorithm, state: SearchState, batch: Batch) -> tuple[SearchState, StepInfo]:
    """SCORE, TRAIN: let the discount learn from a batch of results, which ends an iteration."""
    archive = algorithm.archive
    seen, scored = step.score(algorithm, state, batch)
    learned, fit = step.train(algorithm, state, seen, scored)
    below, low = step.below_f_min(state.low, batch, archive.f_min)
    counts = algorithm.emitter.metrics(state.emitter)
    unique_cells = num_unique_cells(batch, archive.num_cells)
    failed, outside = jnp.sum(~batch.valid, dtype=jnp.int32), step.outside_bounds(archive, seen)
    info = StepInfo(fit, counts, unique_cells, failed, below, outside)
    finished = state.iteration + 1
    return dataclasses.replace(state, iteration=finished, discount=learned, low=low), info


def _view(
    algorithm: Algorithm, state: SearchState, index: Int[Array, ""], generation: Int[Array, ""]
) -> SearchState:
    """The search as one part sees it: its own randomness, generation and emitter."""
    key = jax.random.fold_in(jax.random.fold_in(state.key, _PARTS), index)
    emitter = algorithm.emitter.part_state(state.emitter, index)
    return dataclasses.replace(state, key=key, iteration=generation, emitter=emitter)
