"""The driver of `gloam.run`: stretches of iterations in one compiled program, all seeds at once."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from gloam import step
from gloam._tools import checks
from gloam._tools.compiler import keep_compiled_programs
from gloam._tools.devices import usable_devices
from gloam._tools.draws import STARTS, root_key, root_keys
from gloam._tools.programs import partition
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.errors import EvaluationError
from gloam.evaluation import VIOLATION, asks_for, evaluation_parts, measure_shapes, of_vectors
from gloam.formats import RunFolder
from gloam.formats.config import DriverKind
from gloam.records import Branching, SearchState, StepInfo
from gloam.runs.failures import warn_of_failed_batch
from gloam.runs.fused_program import MOST_ROWS, fused_program
from gloam.runs.options import start_of
from gloam.searches.metrics import (
    LowObjectiveWarning,
    metric_columns,
    metric_rows,
    snapshot_arrays,
)
from gloam.searches.starts import Start, evaluated_start, started

# More than the iterations of a run.
_NEVER = 2**30


class FusedDriver:
    """All seeds of a search in one program on the device."""

    kind: DriverKind = "fused"

    rows_at_once = MOST_ROWS
    evaluator = None

    def __init__(self, domain: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        is_function = callable(domain)
        expected = "a function of a batch of solutions"
        checks.expect(is_function, "domain", expected, type(domain).__name__)
        asks_for(domain, "key")  # refuses other parameters
        keep_compiled_programs()
        self.seeds = seeds
        self.algorithm, self._domain = algorithm, domain
        self.batch = algorithm.emitter.num_solutions
        self._keys = root_keys(seeds)
        self._x0s = jax.device_put(np.stack([start_of(domain, algorithm, seed) for seed in seeds]))
        traced = getattr(domain, "for_programs", lambda: domain)()
        self._arrays, static = partition((traced, algorithm.for_programs()))
        arrays = self._arrays, self._keys, self._x0s
        self._program = fused_program(static, arrays, len(seeds), _devices_for(len(seeds)))
        if not self._program.is_checked:
            _check_evaluation(step.with_key(domain, root_key(0)), algorithm)
            self._program.is_checked = True
        self._info: StepInfo | None = None
        self._logged: list[int] = []
        self._columns: dict[str, np.ndarray] = {}
        self._state: SearchState | None = None
        self._iteration: int | None = None
        self._warning = LowObjectiveWarning(algorithm)
        self._warned: set[int] = set()

    def start(self, start: Start | None = None) -> None:
        """Begin at iteration 0; the programs compile in the background.

        Args:
            start: Solutions to start from, which are evaluated again if they have no results.
        """
        shapes = self._program.state_shapes(self._arrays, self._keys, self._x0s)
        size = sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(shapes))
        of, fix = f"the states of {len(self.seeds):,} seeds", "Use fewer seeds or cells."
        checks.fits_memory("seeds", size, of, fix)
        self._program.start(self._arrays, self._keys, self._x0s)
        if start is None:
            return
        if start.results is None:
            key = jax.random.fold_in(root_key(self.seeds[0]), STARTS)
            start = evaluated_start(start, self.batch, jax.jit(self._evaluated), key)
        state = self.checkpoint()
        each = [
            started(self.algorithm, _seed_of(state, place), start)
            for place in range(len(self.seeds))
        ]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        self._state = dataclasses.replace(stacked, iteration=state.iteration)

    def _evaluated(self, rows: Array, key: PRNGKeyArray) -> step.Evaluation:
        domain, form = step.with_key(self._domain, key), self.algorithm.emitter.form
        return step.evaluation(of_vectors(domain, form)(rows))

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin at a checkpoint; ``read`` returns its state, given the shapes of the state."""
        self._state = read(self._program.state_shapes(self._arrays, self._keys, self._x0s))
        self._iteration = None

    def advance(self, iterations: int, log_every: int = _NEVER) -> None:
        """Run some iterations. Those that are divisible by ``log_every`` are logged.

        If the whole batch of a seed fails, it continues, and a warning names it once.

        Raises:
            EvaluationError: The batches of all seeds failed in one iteration, which is the last of
                the state.
        """
        last = self.iteration + iterations
        assert last <= (self.iteration // log_every + MOST_ROWS) * log_every
        done = self._program.advance(self._arrays, self.checkpoint(), last, log_every)
        # One transfer, because the device waits for each of them.
        low, first_failures, everything_failed, iterations, columns = jax.device_get(
            (
                done.state.low,
                done.first_failures,
                done.everything_failed,
                done.iterations,
                metric_columns(done.infos, done.metrics),
            )
        )
        reported: list[int] = np.trim_zeros(np.asarray(iterations), "b").tolist()
        # Only now, so that an interrupt during the iterations leaves no state without its metrics.
        self._state, self._iteration = done.state, reported[-1]
        # The training set of the discount stays on the device until a snapshot needs it.
        self._info = done.info
        # A batch of which nothing is left has no metrics.
        self._logged = reported[:-1] if everything_failed else reported
        self._columns = columns
        self._warning.check(low, stacklevel=6)
        before = self.iteration + (not everything_failed)
        for seed, at in zip(self.seeds, first_failures.tolist(), strict=True):
            if 0 < at < before and seed not in self._warned:
                self._warned.add(seed)
                warn_of_failed_batch(self.batch, seed, at, stacklevel=2)
        if everything_failed:
            raise EvaluationError(
                f"evaluation: expected at least one finite result in iteration {self.iteration}, "
                f"got none among {self.batch} solutions of each of {len(self.seeds)} seeds. "
                "Every objective or measure was NaN or infinite: check the evaluation function "
                "on x0, and that x0 and sigma0 keep solutions in its domain."
            )

    @property
    def iteration(self) -> int:
        """Number of finished iterations."""
        if self._iteration is None:
            self._iteration = int(self.checkpoint().iteration)
        return int(self._iteration)

    def checkpoint(self) -> SearchState:
        """Return the states of all seeds. Waits for programs that `start` compiles."""
        if self._state is None:
            self._state = self._program.first_state(self._arrays, self._keys, self._x0s)
        return self._state

    def metrics(self) -> list[list[dict[str, Any]]]:
        """Return the metrics of each seed after each logged iteration, and after the last one."""
        counts = self.batch, self.algorithm.emitter.num_gradients
        return [
            metric_rows(
                self.seeds, at, *counts, {name: rows[row] for name, rows in self._columns.items()}
            )
            for row, at in enumerate(self._logged)
        ]

    def elites(self) -> list[Elites]:
        """Return the elites of each seed."""
        state, archive = self.checkpoint(), self.algorithm.archive
        store, form = jax.tree.map(np.asarray, state.store), self.algorithm.emitter.form
        return [
            Elites(
                archive,
                jax.tree.map(lambda leaf, i=i: leaf[i], store),
                reference=reference,
                form=form,
            )
            for i, reference in enumerate(np.asarray(state.reference).tolist())
        ]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays for a figure of the first seed."""
        assert self._info is not None, "there was no iteration yet"
        state = self.checkpoint()
        # By NumPy, because indexing on the device compiles a program for each shape.
        found = jax.device_get((state.store.objectives, state.discount, self._info.fit))
        return snapshot_arrays(*jax.tree.map(lambda leaf: leaf[0], found))

    def write_failures(self, folder: RunFolder) -> None:
        """Do nothing: a compiled program counts failures but does not record them."""

    def read_failures(self, folder: RunFolder) -> None:
        """Do nothing."""


def _seed_of(state: SearchState, place: int) -> SearchState:
    """Return the state of one seed; all share the iteration."""
    one = jax.tree.map(lambda leaf: leaf[place] if leaf.ndim else leaf, state)
    return dataclasses.replace(one, iteration=state.iteration)


def _devices_for(seeds: int) -> tuple[Any, ...]:
    """Return as many devices as can have equal shares of the seeds."""
    devices = usable_devices()
    return tuple(devices[: max(n for n in range(1, len(devices) + 1) if seeds % n == 0)])


def _check_evaluation(domain: Callable, algorithm: Algorithm) -> None:
    """Trace the domain once, without running it, and check the shapes and dtypes of its results."""
    batch, archive = algorithm.emitter.num_solutions, algorithm.archive
    solutions = jax.ShapeDtypeStruct((batch, algorithm.emitter.x0.shape[0]), jnp.float32)
    domain = of_vectors(domain, algorithm.emitter.form)
    try:
        objectives, measures, fields = jax.eval_shape(
            lambda rows: evaluation_parts(domain(rows)), solutions
        )
    except Exception as error:
        raise ValueError(
            f"domain: expected a function that JAX can trace on solutions of shape "
            f"{solutions.shape}, got an error from it: {error}. For NumPy, PyTorch or a simulator "
            "use gloam.optimize, or ask and tell."
        ) from error
    if objectives is not None:
        got = f"shape {objectives.shape} from the domain"
        checks.expect(objectives.shape == (batch,), "objectives", f"shape {(batch,)}", got)
        _check_real("objectives", objectives.dtype)
    _check_real("measures", measures.dtype)
    shapes = measure_shapes(batch, archive.measure_shape)
    checks.expect(
        measures.shape in shapes,
        "measures",
        f"shape {checks.one_of(shapes)}, as the archive has",
        f"shape {measures.shape} from the domain",
    )
    if VIOLATION in fields:
        got = f"shape {fields[VIOLATION].shape} from the domain"
        is_row = fields.pop(VIOLATION).shape == (batch,)
        checks.expect(is_row, VIOLATION, f"shape {(batch,)}", got)
    checks.same_names("fields", archive.fields, fields)
    if algorithm.emitter.num_gradients:
        _check_gradients(domain, algorithm, objectives, measures)


def _check_gradients(
    domain: Callable, algorithm: Algorithm, objectives: Any, measures: Any
) -> None:
    """Trace the gradients of the domain once, without running it.

    Args:
        domain: The domain.
        algorithm: An algorithm whose emitter needs gradients.
        objectives: Shape and dtype of the objectives, or ``None``.
        measures: Shape and dtype of the measures.
    """
    emitter = algorithm.emitter
    is_branching = isinstance(emitter, Branching)
    number = len(emitter.points(emitter.init()) if is_branching else emitter.gradient_rows)
    fix = (
        "Use operations that JAX can differentiate, gloam.optimize with vjp=..., or an algorithm "
        "without gradients."
    )
    for name, found in (("objectives", objectives), ("measures", measures)):
        is_float = found is None or jnp.issubdtype(found.dtype, jnp.floating)
        expected = "floats, because the emitter needs gradients"
        checks.expect(is_float, name, expected, f"{found and found.dtype} from the domain", fix)

    def gradients(rows: jax.Array) -> jax.Array:
        found, pull = jax.vjp(lambda some: step.evaluation(domain(some))[:2], rows)
        return pull(found)[0]

    solutions = jax.ShapeDtypeStruct((number, algorithm.emitter.x0.shape[0]), jnp.float32)
    try:
        jax.eval_shape(gradients, solutions)
    except Exception as error:
        raise ValueError(
            f"domain: expected a function that JAX can differentiate, because the emitter needs "
            f"the gradients of {number} of {algorithm.emitter.num_solutions} solutions, got an "
            f"error from it: {error}. {fix}"
        ) from error


def _check_real(name: str, dtype: Any) -> None:
    is_real = any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer))
    expected = "real numbers (floats or integers)"
    checks.expect(is_real, name, expected, f"{dtype} from the domain")
