"""The driver of `gloam.run`: stretches of iterations of all seeds in one compiled program.

A GPU runs all seeds at once, a CPU one after the other. With several devices the seeds are
distributed in equal shares. No data passes between seeds.
"""

import dataclasses
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import diagnostics, step
from gloam._tools import checks
from gloam._tools.compiler import compile_lowered, compiler_options, keep_compiled_programs
from gloam._tools.devices import runs_on_cpu, usable_devices
from gloam._tools.draws import STARTS, root_key, root_keys
from gloam._tools.kernels import with_fallback
from gloam._tools.programs import Static, partition
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.errors import EvaluationError
from gloam.evaluation import asks_for
from gloam.formats import RunFolder
from gloam.formats.config import DriverKind
from gloam.records import SearchState, StepInfo
from gloam.runs.failures import warn_of_failed_batch
from gloam.runs.options import start_of
from gloam.runs.traced_evaluation import check_traced_evaluation
from gloam.searches.metrics import (
    LowObjectiveWarning,
    metric_columns,
    metric_rows,
    snapshot_arrays,
)
from gloam.searches.starts import Start, evaluated_start, started

# More than the iterations of a run.
_NEVER = 2**30
MOST_ROWS = 32
"""Number of logged iterations that one call of the loop can report."""

# Number of programs that are kept for later runs of the same shapes.
_KEPT = 8
# Settings of JAX that change what a program computes. `jax.jit` compares them itself, programs that
# are compiled ahead of time do not.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_disable_jit",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)


class FusedDriver:
    """All seeds of a search in one program on the device."""

    kind: DriverKind = "fused"

    rows_at_once = MOST_ROWS
    evaluator = None

    def __init__(self, domain: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        expected, got = "a function of a batch of solutions", type(domain).__name__
        checks.expect(callable(domain), "domain", expected, got)
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
        self._programs = fused_programs(static, arrays, len(seeds), _devices_for(len(seeds)))
        if not self._programs.is_checked:
            check_traced_evaluation(step.with_key(domain, root_key(0)), algorithm)
            self._programs.is_checked = True
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
        shapes = self._programs.state_shapes(self._arrays, self._keys, self._x0s)
        num_bytes = sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(shapes))
        states, fix = f"the states of {len(self.seeds):,} seeds", "Use fewer seeds or cells."
        checks.fits_memory("seeds", num_bytes, states, fix)
        self._programs.start(self._arrays, self._keys, self._x0s)
        if start is None:
            return
        if start.results is None:
            key = jax.random.fold_in(root_key(self.seeds[0]), STARTS)
            form = self.algorithm.emitter.form
            evaluate = jax.jit(partial(step.evaluate_vectors, self._domain, form))
            start = evaluated_start(start, self.batch, evaluate, key)
        state = self.checkpoint()
        states = [
            started(self.algorithm, _state_of_seed(state, index), start)
            for index in range(len(self.seeds))
        ]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self._state = dataclasses.replace(stacked, iteration=state.iteration)

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin at a checkpoint; ``read`` returns its state, given the shapes of the state."""
        self._state = read(self._programs.state_shapes(self._arrays, self._keys, self._x0s))
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
        advanced = self._programs.advance(self._arrays, self.checkpoint(), last, log_every)
        # One transfer, because the device waits for each of them.
        low, first_failures, everything_failed, reported, columns = jax.device_get(
            (
                advanced.state.low,
                advanced.first_failures,
                advanced.everything_failed,
                advanced.iterations,
                metric_columns(advanced.infos, advanced.metrics),
            )
        )
        logged: list[int] = np.trim_zeros(np.asarray(reported), "b").tolist()
        # Only now, so that an interrupt during the iterations leaves no state without its metrics.
        self._state, self._iteration, self._columns = advanced.state, logged[-1], columns
        # The training set of the discount stays on the device until a snapshot needs it.
        self._info = advanced.info
        # An iteration whose evaluations all failed has no metrics.
        self._logged = logged[:-1] if everything_failed else logged
        self._warning.check(low)
        end = self.iteration + (not everything_failed)
        for seed, iteration in zip(self.seeds, first_failures.tolist(), strict=True):
            if 0 < iteration < end and seed not in self._warned:
                self._warned.add(seed)
                warn_of_failed_batch(self.batch, seed, iteration)
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
            self._state = self._programs.first_state(self._arrays, self._keys, self._x0s)
        return self._state

    def metrics(self) -> list[list[dict[str, Any]]]:
        """Return the metrics of each seed after each logged iteration, and after the last one."""
        counts = self.batch, self.algorithm.emitter.num_gradients
        tables = []
        for row, iteration in enumerate(self._logged):
            columns = {name: values[row] for name, values in self._columns.items()}
            tables.append(metric_rows(self.seeds, iteration, *counts, columns))
        return tables

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
        of_seeds = jax.device_get((state.store.objectives, state.discount, self._info.fit))
        return snapshot_arrays(*jax.tree.map(lambda leaf: leaf[0], of_seeds))

    def write_failures(self, folder: RunFolder) -> None:
        """Do nothing: a compiled program counts failures but does not record them."""

    def read_failures(self, folder: RunFolder) -> None:
        """Do nothing."""


def _state_of_seed(state: SearchState, index: int) -> SearchState:
    """Return the state of one seed; all share the iteration."""
    return jax.tree.map(lambda leaf: leaf[index] if leaf.ndim else leaf, state)


def _devices_for(num_seeds: int) -> tuple[Any, ...]:
    """Return as many devices as can have equal shares of the seeds."""
    devices = usable_devices()
    return tuple(devices[: max(n for n in range(1, len(devices) + 1) if num_seeds % n == 0)])


def fused_programs(
    static: Static, arrays: Any, num_seeds: int, devices: tuple[Any, ...]
) -> "FusedPrograms":
    """Return the programs for a domain and an algorithm, compiled before if they are still kept.

    Args:
        static: Static part of ``(domain, algorithm)``, by `gloam._tools.programs.partition`.
        arrays: All arrays that the programs take.
        num_seeds: Number of seeds.
        devices: Devices to which the seeds are distributed.
    """
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arrays))
    settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
    return _kept_programs(static, num_seeds, devices, shapes, settings)


@lru_cache(maxsize=_KEPT)
def _kept_programs(
    static: Static, num_seeds: int, devices: tuple[Any, ...], *distinguished_by: Any
) -> "FusedPrograms":
    return FusedPrograms(static, num_seeds, devices)


class Advanced(NamedTuple):
    """The result of a call of the loop."""

    state: SearchState
    info: StepInfo
    """Diagnostics of the last iteration, for each seed."""
    first_failures: Int[Array, " seeds"]
    """First iteration in which the whole batch of a seed failed, 0 if there was none."""
    everything_failed: Bool[Array, ""]
    """True if the batches of all seeds failed in the last iteration."""
    iterations: Int[Array, " rows"]
    """Reported iterations, then zeros."""
    infos: StepInfo
    """Diagnostics of reported iterations, in arrays of ``(rows, seeds, ...)``, without training
    sets."""
    metrics: diagnostics.SearchMetrics
    """Metrics of reported iterations, in such arrays."""


class _Progress(NamedTuple):
    """The values that an iteration changes."""

    state: SearchState
    info: StepInfo
    first_failures: Int[Array, "..."]
    everything_failed: Bool[Array, ""]


class FusedPrograms:
    """Two compiled programs: the first state of all seeds, and a loop of iterations.

    They are the same for all numbers and arrays of the same shapes.
    """

    def __init__(self, static: Static, num_seeds: int, devices: tuple[Any, ...]):
        self.is_checked = False
        """True if the evaluation of the domain is known to fit the archive."""
        self._static = static
        self._one_seed = num_seeds == len(devices)  # on each device
        self._one_device = len(devices) == 1
        # A batch of seeds computes both branches of every condition: all emitters for every slot.
        # A GPU is still faster so. Several CPU devices have to stay in the same iteration.
        self._in_turn = not self._one_seed and self._one_device and runs_on_cpu()
        begin, loop = self._begin_seeds, self._run_iterations
        if not self._one_device:
            mesh = Mesh(np.array(devices), ("seeds",))
            shard = partial(jax.shard_map, mesh=mesh, check_vma=False)
            begin = shard(begin, in_specs=(_SHARED, _BY_SEED, _BY_SEED), out_specs=_STATE_SPECS)
            loop = shard(loop, in_specs=(_SHARED, _STATE_SPECS, _SHARED), out_specs=_ADVANCED_SPECS)
        self._begin = jax.jit(begin)
        # Lengths are arguments, so that every stretch uses the same program.
        self._loop = jax.jit(loop, donate_argnums=1)
        self._lock = threading.Lock()
        self._compiled_begin: Future[Callable] | None = None
        self._compiled_loop: Future[Callable] | None = None

    def start(
        self, arrays: list[Array], keys: PRNGKeyArray, x0s: Float[Array, "seeds sol"]
    ) -> None:
        """Compile both programs in parallel, in the background."""

        def compile_both() -> None:
            self._compile_both(arrays, keys, x0s)

        with_fallback(compile_both, compile_both)

    def first_state(
        self, arrays: list[Array], keys: PRNGKeyArray, x0s: Float[Array, "seeds sol"]
    ) -> SearchState:
        """Return the state of all seeds at iteration 0."""

        def program() -> Callable:
            self.start(arrays, keys, x0s)
            assert self._compiled_begin is not None
            return self._finished(self._compiled_begin)

        return with_fallback(program, program)(arrays, keys, x0s)

    def state_shapes(
        self, arrays: list[Array], keys: PRNGKeyArray, x0s: Float[Array, "seeds sol"]
    ) -> Any:
        """Return the shapes of the state of all seeds."""
        return jax.eval_shape(self._begin, arrays, keys, x0s)

    def advance(
        self, arrays: list[Array], state: SearchState, last: int, log_every: int
    ) -> "Advanced":
        """Run to iteration ``last``. The memory of ``state`` is reused.

        Iterations that are divisible by ``log_every`` are reported, and the last one: at most
        `MOST_ROWS`.
        """
        stops = np.array([last, log_every], np.int32)

        def program() -> Callable:
            with self._lock:
                if self._compiled_loop is None:
                    lowered = self._loop.lower(arrays, state, stops)
                    self._compiled_loop = Future()
                    self._compiled_loop.set_result(compile_lowered(lowered, compiler_options()))
            return self._finished(self._compiled_loop)

        return with_fallback(program, program)(arrays, state, stops)

    def _compile_both(
        self, arrays: list[Array], keys: PRNGKeyArray, x0s: Float[Array, "seeds sol"]
    ) -> None:
        with self._lock:
            if self._compiled_begin is not None:
                return
            begin = self._begin.trace(arrays, keys, x0s)
            pool = ThreadPoolExecutor(2)
            options = compiler_options()  # here, because settings of JAX are by thread

            def compile_begin() -> None:
                self._compiled_begin = pool.submit(compile_lowered, begin.lower(), options)

            def compile_loop() -> None:
                if self._one_device and self._compiled_loop is None:
                    loop = self._loop.lower(arrays, begin.out_info, np.ones(2, np.int32))
                    self._compiled_loop = pool.submit(compile_lowered, loop, options)

            # On a GPU the larger program takes longest, and goes first. A CPU has few cores, which
            # compile the smaller program while Python lowers the larger one.
            tasks = [compile_loop, compile_begin]
            for task in reversed(tasks) if runs_on_cpu() else tasks:
                task()
            pool.shutdown(wait=False)

    def _finished(self, program: "Future[Callable]") -> Callable:
        """Return a compiled program. After an error (out of memory, say) it can be tried again."""
        try:
            return program.result()
        except Exception:
            self._compiled_begin = self._compiled_loop = None
            raise

    def _begin_seeds(
        self, arrays: list[Array], keys: PRNGKeyArray, x0s: Float[Array, "seeds sol"]
    ) -> SearchState:
        _, algorithm = self._static.with_arrays(arrays)
        if self._one_seed:
            return _map_seeds(lambda leaf: leaf[None], step.init(algorithm, keys[0], x0s[0]))
        return jax.vmap(partial(step.init, algorithm), out_axes=_AXES)(keys, x0s)

    def _run_iterations(
        self, arrays: list[Array], state: SearchState, stops: Int[Array, "2"]
    ) -> Advanced:
        domain, algorithm = self._static.with_arrays(arrays)
        last, log_every = stops
        advance = partial(step.step, algorithm, domain)
        metrics = partial(diagnostics.metrics, algorithm)
        state_of_first = _map_seeds(lambda leaf: leaf[0], state)
        if self._one_seed:  # faster than a batch of one
            state = state_of_first
        else:
            metrics = jax.vmap(metrics, in_axes=(_AXES,))
        if not (self._one_seed or self._in_turn):
            advance = jax.vmap(advance, in_axes=(_AXES,), out_axes=(_AXES, 0))
        advance = jax.jit(advance, inline=True)  # traced once for its shapes and for the loop

        def next_iteration(progress: _Progress) -> _Progress:
            state, info = advance(progress.state)
            failed = info.failed == algorithm.emitter.num_solutions
            first = failed & (progress.first_failures == 0)
            first_failures = jnp.where(first, state.iteration, progress.first_failures)
            everything_failed = jnp.all(failed)
            if not self._one_device:  # all devices stop together
                everything_failed = jax.lax.pmin(everything_failed.astype(jnp.int32), "seeds") > 0
            return _Progress(state, info, first_failures, everything_failed)

        # The loop ends at the iteration in which the batches of all seeds fail, so that the result
        # does not depend on the lengths of stretches.
        def goes_on(progress: _Progress, stop: Any, least: Any = 0) -> Any:
            iteration = progress.state.iteration
            return (iteration < stop) & ~(progress.everything_failed & (iteration >= least))

        def run_to(progress: _Progress, stop: Any, least: Any = 0) -> _Progress:
            condition = partial(goes_on, stop=stop, least=least)
            return jax.lax.while_loop(condition, next_iteration, progress)

        run_all_to = partial(_in_turn, run_to) if self._in_turn else run_to

        # Several rows of metrics in one call, because a GPU takes milliseconds to start a program.
        def next_row(carry: tuple[_Progress, Any, Any]) -> tuple[_Progress, Any, Any]:
            progress, rows, index = carry
            stop = jnp.minimum((progress.state.iteration // log_every + 1) * log_every, last)
            progress = run_all_to(progress, stop)
            state = progress.state
            row = state.iteration, _without_training_set(progress.info), metrics(state)
            put = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
            return progress, jax.tree.map(put, rows, row), index + 1

        if self._in_turn:
            num_seeds = len(state.store.occupied)
            info = _zeros_like(jax.eval_shape(advance, state_of_first)[1], (num_seeds,))
        else:
            info = _zeros_like(jax.eval_shape(advance, state)[1])
        row = state.iteration, _without_training_set(info), jax.eval_shape(metrics, state)
        rows = _zeros_like(row, (MOST_ROWS,))
        progress = _Progress(state, info, jnp.zeros_like(info.failed), jnp.zeros((), bool))
        progress, rows, _ = jax.lax.while_loop(
            lambda carry: goes_on(carry[0], last), next_row, (progress, rows, jnp.int32(0))
        )
        state, info, first_failures, everything_failed = progress
        iterations, infos, metrics_of_rows = rows
        if self._one_seed:
            state = _map_seeds(lambda leaf: leaf[None], state)
            info, first_failures = jax.tree.map(lambda leaf: leaf[None], (info, first_failures))
            infos, metrics_of_rows = jax.tree.map(
                lambda leaf: leaf[:, None], (infos, metrics_of_rows)
            )
        return Advanced(
            state=state,
            info=info,
            first_failures=first_failures,
            everything_failed=everything_failed,
            iterations=iterations,
            infos=infos,
            metrics=metrics_of_rows,
        )


def _in_turn(run_to: Callable[..., _Progress], progress: _Progress, stop: Any) -> _Progress:
    """Run one seed after the other to ``stop``, or to an iteration in which all batches fail.

    A seed runs to the next iteration in which its batch fails. Those behind the last one go on,
    until all are in the same iteration.
    """

    def advanced(index: Any, each: _Progress, least: Any) -> _Progress:
        seed = run_to(jax.tree.map(lambda leaf: leaf[index], each), stop, least)
        put = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
        return jax.tree.map(put, each, seed)

    def catch_up(carry: tuple[_Progress, Any]) -> tuple[_Progress, Any]:
        each, least = carry
        num_seeds = len(each.first_failures)
        each = jax.lax.fori_loop(0, num_seeds, partial(advanced, least=least), each)
        return each, jnp.max(each.state.iteration)

    def is_behind(carry: tuple[_Progress, Any]) -> Any:
        return jnp.any(carry[0].state.iteration < carry[1])

    shared = lambda p: (p.state.iteration, p.everything_failed)  # noqa: E731
    spread = [jnp.broadcast_to(leaf, progress.first_failures.shape) for leaf in shared(progress)]
    first = eqx.tree_at(shared, progress, spread), progress.state.iteration + 1
    each, iteration = jax.lax.while_loop(is_behind, catch_up, first)
    return eqx.tree_at(shared, each, (iteration, jnp.all(each.everything_failed)))


def _zeros_like(shapes: Any, leading: tuple[int, ...] = ()) -> Any:
    return jax.tree.map(lambda s: jnp.zeros((*leading, *s.shape), s.dtype), shapes)


def _without_training_set(info: StepInfo) -> StepInfo:
    """Return diagnostics for a row of metrics; only snapshots need the training set."""
    parts = lambda info: (info.fit.points, info.fit.targets, info.fit.is_trained)  # noqa: E731
    return eqx.tree_at(parts, info, (None, None, None))


def _by_seed(each: Any, shared: Any) -> Any:
    """Return a state with ``shared`` as its iteration, and ``each`` in all other fields.

    All seeds share the iteration. Conditions on it stay conditions under `jax.vmap`; on a batched
    number both branches would be computed.
    """
    # Not by the constructor, because shapes of arrays are checked there in the tests.
    spec = object.__new__(SearchState)
    for field in dataclasses.fields(SearchState):
        object.__setattr__(spec, field.name, shared if field.name == "iteration" else each)
    return spec


_AXES = _by_seed(0, None)
_BY_SEED, _SHARED = PartitionSpec("seeds"), PartitionSpec()
_STATE_SPECS = _by_seed(_BY_SEED, _SHARED)
_ROWS = PartitionSpec(None, "seeds")
_ADVANCED_SPECS: Any = Advanced(
    state=_STATE_SPECS,
    info=_BY_SEED,  # pyright: ignore[reportArgumentType]
    first_failures=_BY_SEED,  # pyright: ignore[reportArgumentType]
    everything_failed=_SHARED,  # pyright: ignore[reportArgumentType]
    iterations=_SHARED,  # pyright: ignore[reportArgumentType]
    infos=_ROWS,  # pyright: ignore[reportArgumentType]
    metrics=_ROWS,  # pyright: ignore[reportArgumentType]
)


def _map_seeds(function: Callable, state: SearchState) -> SearchState:
    iteration = state.iteration
    state = jax.tree.map(function, eqx.tree_at(lambda s: s.iteration, state, iteration[None]))
    return eqx.tree_at(lambda s: s.iteration, state, iteration)
