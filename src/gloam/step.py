"""One iteration: ask, evaluate, add, score, adapt, train. The file to read first.

All functions are pure and can be compiled, so they are also the functional interface of gloam, for
loops of your own:

    >>> import gloam, jax
    >>> from gloam import step
    >>> domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=10)
    >>> algorithm = gloam.MAPElites(domain.archive(), domain.x0, sigma0=0.5, batch_size=20)
    >>> state = step.init(algorithm, jax.random.key(0))
    >>> advance = jax.jit(lambda state: step.step(algorithm, domain, state))
    >>> state, info = advance(state)
    >>> int(state.iteration), int(info.failed)
    (1, 0)

`gloam.run` compiles `step` for many seeds, and `gloam.Search` compiles `ask` and `tell` around an
evaluation in Python.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import draws
from gloam._tools.compiler import float32
from gloam.algorithms import Algorithm
from gloam.archives.qd_score import lowered
from gloam.archives.store import add as add_to_store
from gloam.archives.store import (
    empty_store,
    random_cells,
    random_elites,
    random_empty_cells,
    running_counts,
)
from gloam.archives.targets import draw_targets
from gloam.diagnostics import SearchMetrics as SearchMetrics
from gloam.diagnostics import below_f_min
from gloam.diagnostics import diagnostics as diagnostics
from gloam.diagnostics import metrics as metrics
from gloam.emitters import Branching
from gloam.evaluation import VIOLATION, asks_for, evaluation_parts, of_vectors, valid_rows
from gloam.records import (
    Added,
    Batch,
    Climb,
    Distances,
    Feedback,
    Fit,
    LowObjectives,
    Proposal,
    Scored,
    SearchState,
    StepInfo,
    Weights,
)
from gloam.spaces import Form

Evaluation = tuple[Float[Array, " batch"] | None, Float[Array, "batch meas"], dict[str, Array]]
"""Objectives, measures and fields. ``None`` maximizes the closeness to the center of the cell."""


# Number of elites whose improvements are compared in tournaments: their scores cost more than the
# rest of a proposal.
_SCORED_ELITES = 864


@float32()
def init(
    algorithm: Algorithm, key: PRNGKeyArray, x0: Float[Array, " sol"] | None = None
) -> SearchState:
    """Return the state before the first iteration, at ``x0`` or at the emitter's ``x0``."""
    key_cells, key_discount = jax.random.split(jax.random.fold_in(key, draws.FIRST))
    archive, discount, emitter = algorithm.archive, algorithm.discount, algorithm.emitter
    x0 = emitter.x0 if x0 is None else x0
    store = empty_store(archive.num_cells, x0.shape[0], archive.measure_dim, archive.fields)
    empty_cells, is_real = random_empty_cells(store, discount.num_initial_centers, key=key_cells)
    learned = discount.init(archive.centers_of(empty_cells), is_real, key=key_discount)
    zero = jnp.zeros((), jnp.int32)
    low = LowObjectives(lowest=jnp.full((), archive.f_min_from(0.0), jnp.float32), batches=zero)
    return SearchState(
        key=key,
        iteration=zero,
        failed=zero,
        emitter=emitter.init(x0),
        store=store,
        discount=learned,
        low=low,
        x0=x0,
        infeasible=zero,
        started=zero,
        reference=jnp.zeros((), jnp.float32),
    )


def step(
    algorithm: Algorithm, evaluate: Callable[..., Any], state: SearchState
) -> tuple[SearchState, StepInfo]:
    """Run one iteration, with an ``evaluate`` that JAX can trace.

    ``evaluate`` takes the values of a space or tree if the algorithm was built with one. Its
    keyword-only parameter ``key``, if it has one, is the `evaluation_key` of the iteration.
    """
    first, second = _with_keys(evaluate, state)
    form = algorithm.emitter.form
    functions = of_vectors(first, form), of_vectors(second, form)
    if isinstance(algorithm.emitter, Branching):
        return _branching_step(algorithm, algorithm.emitter, functions, state)
    proposal = ask(algorithm, state)
    rows = algorithm.emitter.gradient_rows
    if not len(rows):
        return tell(algorithm, state, proposal, evaluation(functions[0](proposal.solutions)))
    results, pullback = _evaluated_with_gradients(functions, proposal.solutions, rows)
    return tell(algorithm, state, proposal, results, pullback=pullback)


def with_key(evaluate: Callable[..., Any], key: PRNGKeyArray) -> Callable[[Any], Any]:
    """Return the evaluation with a random key, if it asks for one."""
    return partial(evaluate, key=key) if asks_for(evaluate, "key") else evaluate


def evaluate_vectors(
    evaluate: Callable[..., Any],
    form: Form | None,
    solutions: Float[Array, "batch sol"],
    key: PRNGKeyArray,
) -> Evaluation:
    """Evaluate vectors outside of an iteration, with a random key if the evaluation has one."""
    return evaluation(of_vectors(with_key(evaluate, key), form)(solutions))


@float32()
def evaluation_key(state: SearchState) -> PRNGKeyArray:
    """Return the random key for the evaluation of the next batch of a state."""
    return draws.evaluation_key(state.key, state.iteration)


_Evaluate = Callable[[Array], Any]


def _with_keys(evaluate: Callable[..., Any], state: SearchState) -> tuple[_Evaluate, _Evaluate]:
    """Return an evaluation for each of two parts of a batch, with different random keys."""
    if not asks_for(evaluate, "key"):
        return evaluate, evaluate
    key = evaluation_key(state)
    return with_key(evaluate, key), with_key(evaluate, jax.random.fold_in(key, 1))


@float32()
def ask(algorithm: Algorithm, state: SearchState) -> Proposal:
    """ASK: propose solutions to evaluate. Asking twice gives the same proposal.

    Solutions of a space are canonical: inactive variables have their starting values.
    """
    keys, emitter = _keys(state), algorithm.emitter
    counts = running_counts(state.store.occupied)
    elites = _elites_to_ask(algorithm, state, counts, key=keys.parents)
    targets = partial(draw_targets, algorithm.archive, state.store, counts, state.x0)
    proposal = emitter.ask(state.emitter, elites, key=keys.ask, targets=targets)
    form = emitter.form
    if form is None:
        return proposal
    return dataclasses.replace(proposal, solutions=form.canonical(proposal.solutions))


def evaluation(answer: Any) -> Evaluation:
    """EVALUATE: return the result of a traced evaluation as float32, with flat rows of measures."""
    objectives, measures, fields = evaluation_parts(answer)
    if objectives is not None:
        objectives = objectives.astype(jnp.float32)
    return objectives, measures.reshape(measures.shape[0], -1).astype(jnp.float32), fields


Pullback = Callable[[Weights], Float[Array, "rows sol"]]
"""A vector-Jacobian product: the gradient of each of the emitter's ``gradient_rows``."""


def _evaluated_with_gradients(
    evaluate: tuple[_Evaluate, _Evaluate], solutions: Float[Array, "batch sol"], rows: np.ndarray
) -> tuple[Evaluation, Pullback]:
    """EVALUATE: evaluate a batch; also return a vector-Jacobian product for some of its rows."""

    def differentiable(solutions: Array) -> tuple[Any, Any]:
        objectives, measures, fields = evaluation(evaluate[0](solutions))
        return (objectives, measures), fields

    (objectives, measures), vjp, fields = jax.vjp(differentiable, solutions[rows], has_aux=True)
    results: Evaluation = objectives, measures, fields
    plain_rows = np.setdiff1d(np.arange(solutions.shape[0]), rows)
    if len(plain_rows):
        plain = evaluation(evaluate[1](solutions[plain_rows]))
        order = np.argsort(np.concatenate([plain_rows, rows]))
        results = jax.tree.map(lambda *both: jnp.concatenate(both)[order], plain, results)

    def pullback(weights: Weights) -> Float[Array, "rows sol"]:
        objective_weights = None if objectives is None else weights.objectives
        return vjp((objective_weights, weights.measures))[0]

    return results, pullback


def _branching_step(
    algorithm: Algorithm,
    emitter: Branching,
    evaluate: tuple[_Evaluate, _Evaluate],
    state: SearchState,
) -> tuple[SearchState, StepInfo]:
    """Run one iteration of an emitter that proposes branches along gradients."""
    points = emitter.points(state.emitter)
    of_points, jacobians = _evaluated_with_jacobians(algorithm, evaluate[0], points)
    state = dataclasses.replace(state, emitter=emitter.with_jacobians(state.emitter, jacobians))
    proposal = ask(algorithm, state)
    of_branches = evaluation(evaluate[1](proposal.solutions[len(points) :]))
    results = jax.tree.map(lambda *both: jnp.concatenate(both), of_points, of_branches)
    return tell(algorithm, state, proposal, results)


def _evaluated_with_jacobians(
    algorithm: Algorithm, evaluate: _Evaluate, points: Float[Array, "points sol"]
) -> tuple[Evaluation, Float[Array, "points outputs sol"]]:
    """EVALUATE: evaluate points, with the gradients of objective and measures."""

    def differentiable(points: Array) -> tuple[Any, Any]:
        objectives, measures, fields = evaluation(evaluate(points))
        maximized = objectives
        if maximized is None:
            with float32():
                cells = algorithm.archive.index_of(jax.lax.stop_gradient(measures))
                maximized = algorithm.archive.closeness(measures, cells)
        outputs = jnp.concatenate([maximized[:, None], measures], axis=1)
        return outputs, (objectives, measures, fields)

    outputs, vjp, results = jax.vjp(differentiable, points, has_aux=True)
    # Row by row of the Jacobian, of all points at once: solutions do not depend on each other.
    unit_vectors = jnp.eye(outputs.shape[1], dtype=outputs.dtype)
    gradients = jax.vmap(lambda unit: vjp(jnp.broadcast_to(unit, outputs.shape))[0])(unit_vectors)
    return results, jnp.moveaxis(gradients, 0, 1)


@float32()
def gradient_weights(
    algorithm: Algorithm,
    state: SearchState,
    proposal: Proposal,
    evaluation: Evaluation,
    cells: Int[Array, " batch"] | None = None,
) -> Weights:
    """Return the cotangents of the emitter's gradient rows."""
    batch = masked_batch(algorithm, proposal.solutions, evaluation, cells)
    state, _ = add(algorithm, state, batch)
    return _weights(algorithm, state, proposal, evaluation, batch)


def _weights(
    algorithm: Algorithm,
    state: SearchState,
    proposal: Proposal,
    evaluation: Evaluation,
    batch: Batch,
) -> Weights:
    archive, aims = algorithm.archive, proposal.aims
    assert aims is not None, "the emitter has gradient_rows, and its proposals no aims"
    batch = jax.tree.map(lambda leaf: leaf[algorithm.emitter.gradient_rows], batch)
    pulling = jnp.where(aims.targets < 0, batch.cells, aims.targets)
    centers, width = archive.centers_of(pulling), archive.upper - archive.lower

    def ascended(objectives: Array, measures: Array) -> Array:
        if evaluation[0] is None:
            objectives = archive.closeness(measures, batch.cells)
        # In units of the improvement. Pulled solutions ignore the gradient of the discount.
        fixed = jnp.where(aims.is_pulled[:, None], jax.lax.stop_gradient(measures), measures)
        at = eqx.tree_at(lambda b: (b.objectives, b.measures), batch, (objectives, fixed))
        improvements = score(algorithm, state, at)[1].improvements
        distance = (archive.discount_space(measures) - centers) / width
        penalties = aims.pulls * jnp.mean(jnp.square(distance), axis=1)
        return jnp.sum(improvements - jnp.where(aims.is_pulled, penalties, 0.0))

    of_objectives, of_measures = jax.grad(ascended, (0, 1))(batch.objectives, batch.measures)
    # A target also pulls solutions that are too far from all items.
    has_weight = jnp.where(aims.targets < 0, batch.valid, batch.has_measures)
    return Weights(
        objectives=jnp.where(batch.valid, of_objectives, 0.0),
        measures=jnp.where(has_weight[:, None], of_measures, 0.0),
    )


def _climb(algorithm: Algorithm, gradients: Float[Array, "rows sol"], batch: Batch) -> Climb:
    rows, size = algorithm.emitter.gradient_rows, batch.solutions.shape[0]
    is_finite = jnp.all(jnp.isfinite(gradients), axis=1)
    gradients = jnp.where(is_finite[:, None], gradients, 0.0)
    return Climb(
        gradients=jnp.zeros_like(batch.solutions).at[rows].set(gradients),
        is_finite=jnp.zeros(size, bool).at[rows].set(is_finite),
    )


@float32()
def tell(
    algorithm: Algorithm,
    state: SearchState,
    proposal: Proposal,
    evaluation: Evaluation,
    cells: Int[Array, " batch"] | None = None,
    pullback: Pullback | None = None,
) -> tuple[SearchState, StepInfo]:
    """ADD, SCORE, ADAPT, TRAIN: learn from the evaluation of a proposal.

    ``cells`` may be given if they were computed outside of the program. ``pullback`` is required
    if the emitter has ``gradient_rows``.
    """
    batch = masked_batch(algorithm, proposal.solutions, evaluation, cells)
    state, added = add(algorithm, state, batch)
    seen, scored = score(algorithm, state, batch)
    climb = None
    if pullback is not None:
        gradients = pullback(_weights(algorithm, state, proposal, evaluation, batch))
        climb = _climb(algorithm, gradients, batch)
    adapted = adapt(algorithm, state, proposal, batch, scored, added, climb)
    learned, fit = train(algorithm, state, seen, scored)

    info, low = diagnostics(algorithm, state, adapted, batch, seen, fit, added.unique_cells)
    new = dataclasses.replace(
        state,
        iteration=state.iteration + 1,
        failed=state.failed + info.failed,
        infeasible=state.infeasible + info.infeasible,
        emitter=adapted,
        discount=learned,
        low=low,
    )
    return new, info


@float32()
def start_with(
    algorithm: Algorithm,
    state: SearchState,
    solutions: Float[Array, "batch sol"],
    evaluation: Evaluation,
    cells: Int[Array, " batch"] | None,
    is_row: Bool[Array, " batch"],
    number: Int[Array, ""],
) -> SearchState:
    """ADD, SCORE, TRAIN: begin a search with solutions that were evaluated before.

    Args:
        algorithm: The algorithm.
        state: State before the first iteration.
        solutions: A batch of solutions.
        evaluation: Their evaluation.
        cells: Their cells, if they were computed outside of the program.
        is_row: False for padding.
        number: Number of the batch.
    """
    batch = masked_batch(algorithm, solutions, evaluation, cells)
    batch = eqx.tree_at(lambda b: b.valid, batch, batch.valid & is_row)
    state, _ = add(algorithm, state, batch)
    seen, scored = score(algorithm, state, batch)
    # A separate key, so that no iteration shares the random numbers of the training.
    key = jax.random.fold_in(state.key, draws.STARTS)
    learned, _ = train(
        algorithm, dataclasses.replace(state, key=key, iteration=number), seen, scored
    )
    _, low = below_f_min(state.low, batch, algorithm.archive.f_min_from(0.0))
    low = dataclasses.replace(low, batches=state.low.batches)
    started = state.started + jnp.sum(batch.valid, dtype=jnp.int32)
    return dataclasses.replace(state, discount=learned, low=low, started=started)


@float32()
def start_emitters(algorithm: Algorithm, state: SearchState) -> SearchState:
    """Let the emitters begin at random elites, after `start_with`."""
    emitter, key = algorithm.emitter, jax.random.fold_in(state.key, draws.STARTS)
    elites = random_elites(state.store, emitter.num_elites_to_adapt, state.x0, key=key)
    return dataclasses.replace(state, emitter=emitter.started_at(state.emitter, elites))


@float32()
def masked_batch(
    algorithm: Algorithm,
    solutions: Float[Array, "batch sol"],
    evaluation: Evaluation,
    cells: Int[Array, " batch"] | None,
) -> Batch:
    """Return the evaluated batch, with failed and infeasible rows masked.

    Beside the field ``violation``, a distance beyond the archive's ``within`` is a violation.
    """
    objectives, measures, fields = evaluation
    violations = fields.get(VIOLATION)
    valid = valid_rows(jnp.asarray(algorithm.archive.accepts(measures)), objectives)
    measures = jnp.where(valid[:, None], measures, 0.0)
    if cells is None:
        cells = algorithm.archive.index_of(measures)
    if objectives is None:
        objectives = algorithm.archive.closeness(measures, cells)
        valid = valid_rows(valid, objectives)
    if violations is not None:
        fields = {name: rows for name, rows in fields.items() if name != VIOLATION}
        violations = violations.astype(jnp.float32)
    excess, is_far = algorithm.archive.excess(measures, cells), None
    if excess is not None:
        excess = jnp.where(valid, excess, 0.0)
        given = 0.0 if violations is None else jnp.maximum(violations, 0.0)
        is_far = (given <= 0) & (excess > 0)
        violations = given + excess
    if violations is not None:
        valid = valid_rows(valid, None, violations)
        violations = jnp.where(violations > 0, violations, 0.0)
        kept = valid if is_far is None else valid | is_far
        measures = jnp.where(kept[:, None], measures, 0.0)
    objectives = jnp.where(valid, objectives, 0.0)
    return Batch(
        solutions=solutions,
        objectives=objectives,
        measures=measures,
        cells=cells,
        valid=valid,
        fields=fields,
        violations=violations,
        is_far=is_far,
    )


@float32()
def add(algorithm: Algorithm, state: SearchState, batch: Batch) -> tuple[SearchState, Added]:
    """ADD: put the batch into the store, and rescale the discount to its objectives."""
    store, added = add_to_store(state.store, batch)
    return rescaled(algorithm, dataclasses.replace(state, store=store)), added


@float32()
def rescaled(algorithm: Algorithm, state: SearchState) -> SearchState:
    """Return the state with discount and reference of the QD score rescaled to the elites.

    Both depend on the elites of earlier calls, too.
    """
    f_min, objectives = algorithm.archive.f_min, state.store.objectives
    discount = algorithm.discount.rescaled(state.discount, objectives, f_min)
    reference = state.reference if f_min is not None else lowered(state.reference, objectives)
    return dataclasses.replace(state, discount=discount, reference=reference)


@float32()
def score(algorithm: Algorithm, state: SearchState, batch: Batch) -> tuple[Batch, Scored]:
    """SCORE: return the batch as the discount sees it, and the improvement of each solution."""
    # The archive keeps measures as evaluated. The discount sees them in the space of the centers.
    measures = algorithm.archive.discount_space(batch.measures)
    seen = eqx.tree_at(lambda b: b.measures, batch, measures)
    return seen, algorithm.discount.score(state.discount, seen)


@float32()
def adapt(
    algorithm: Algorithm,
    state: SearchState,
    proposal: Proposal,
    batch: Batch,
    scored: Scored,
    added: Added,
    climb: Climb | None = None,
) -> Any:
    """ADAPT: return the emitter's state after a proposal whose results are in the store."""
    emitter = algorithm.emitter
    elites = random_elites(
        state.store, emitter.num_elites_to_adapt, state.x0, key=_keys(state).restarts
    )
    was_empty = added.before == -jnp.inf
    distances = None
    if proposal.targets is not None:
        squared = algorithm.archive.squared_distances(batch.measures, proposal.targets)
        are_filled = state.store.occupied[proposal.targets]
        distances = Distances(squared, batch.has_measures, are_filled)
    f_min = algorithm.archive.f_min_from(state.low.lowest)
    floor = algorithm.discount.empty_value(state.discount, f_min)
    gains = batch.objectives - jnp.where(was_empty, floor, added.before)
    feedback = Feedback(
        improvements=scored.improvements,
        accepted=added.accepted,
        filled=added.filled,
        valid=batch.valid,
        iteration=state.iteration + 1,
        climb=climb,
        was_empty=was_empty,
        over_elites=batch.objectives - jnp.where(was_empty, 0.0, added.before),
        gains=jnp.where(added.accepted, jnp.maximum(gains, 0.0), 0.0),
        violations=batch.violations,
        distances=distances,
    )
    return emitter.adapt(state.emitter, proposal, feedback, elites)


@float32()
def train(algorithm: Algorithm, state: SearchState, seen: Batch, scored: Scored) -> tuple[Any, Fit]:
    """TRAIN: return the discount's state after a scored batch, and a report of the training."""
    keys, discount = _keys(state), algorithm.discount
    empty_cells, is_real = random_empty_cells(
        state.store, discount.num_empty_centers, key=keys.empty_cells
    )
    centers = algorithm.archive.centers_of(empty_cells)
    return discount.train(state.discount, seen, scored, centers, is_real, key=keys.train)


class _Keys(NamedTuple):
    """Random keys of one iteration, split once by name."""

    parents: PRNGKeyArray
    ask: PRNGKeyArray
    restarts: PRNGKeyArray
    empty_cells: PRNGKeyArray
    train: PRNGKeyArray


def _keys(state: SearchState) -> _Keys:
    return _Keys(*jax.random.split(jax.random.fold_in(state.key, state.iteration), 5))


def _elites_to_ask(
    algorithm: Algorithm, state: SearchState, counts: Int[Array, " cells"], *, key: PRNGKeyArray
) -> Float[Array, "n sol"]:
    """Return the elites that the emitter asks for."""
    draws_wanted = algorithm.emitter.elites_to_ask
    if not draws_wanted:
        return jnp.zeros((0, *state.x0.shape), state.x0.dtype)
    numbers = [draw.number for draw in draws_wanted]
    sizes = [draw.number * draw.best_of if draw.best_of > 1 else 0 for draw in draws_wanted]
    # For all tournaments together, a pool of scored elites.
    numbers.append(min(_SCORED_ELITES, sum(sizes)))
    cells, is_elite = random_cells(counts, sum(numbers), key=key)
    *chosen, pool = jnp.split(cells, np.cumsum(numbers)[:-1])
    if any(sizes):
        improvements = _improvements(algorithm, state, pool)
        key_members = jax.random.fold_in(key, draws.TOURNAMENTS)
        drawn = draws.uniforms(key_members, sum(sizes)) * len(pool)
        members = jnp.split(jnp.floor(drawn).astype(jnp.int32), np.cumsum(sizes)[:-1])
        for index, draw in enumerate(draws_wanted):
            if draw.best_of > 1:
                rivals = members[index].reshape(-1, draw.best_of)
                best = jnp.argmax(improvements[rivals], axis=1, keepdims=True)
                chosen[index] = pool[jnp.take_along_axis(rivals, best, axis=1)[:, 0]]
    return jnp.where(is_elite, state.store.solutions[jnp.concatenate(chosen)], state.x0)


def _improvements(
    algorithm: Algorithm, state: SearchState, cells: Int[Array, " n"]
) -> Float[Array, " n"]:
    """Return the improvements of the elites of cells over the discount."""
    store, number = state.store, cells.shape[0]
    elites = Batch(
        solutions=jnp.zeros((number, 0)),
        objectives=store.objectives[cells],
        measures=store.measures[cells],
        cells=cells,
        valid=jnp.ones(number, bool),
        fields={},
    )
    return score(algorithm, state, elites)[1].improvements
