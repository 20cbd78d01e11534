"""The programs of `gloam.run`: the first state of all seeds, and a loop of iterations.

With several devices the seeds are distributed in equal shares. No data passes between seeds.
"""

import dataclasses
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
from jaxtyping import Array, Bool, Int

from gloam import step
from gloam._tools.compiler import compile_lowered, compiler_options
from gloam._tools.devices import runs_on_cpu
from gloam._tools.kernels import with_fallback
from gloam._tools.programs import Static
from gloam.records import SearchState, StepInfo

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


def fused_program(
    static: Static, arrays: Any, num_seeds: int, devices: tuple[Any, ...]
) -> "FusedProgram":
    """Return the programs for a domain and an algorithm, compiled before if they are still kept.

    Args:
        static: Static part of ``(domain, algorithm)``, by `gloam._tools.programs.partition`.
        arrays: All arrays that the programs take.
        num_seeds: Number of seeds.
        devices: Devices to which the seeds are distributed.
    """
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arrays))
    settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
    return _kept_program(static, num_seeds, devices, shapes, settings)


@lru_cache(maxsize=_KEPT)
def _kept_program(
    static: Static, num_seeds: int, devices: tuple[Any, ...], *distinguished_by: Any
) -> "FusedProgram":
    return FusedProgram(static, num_seeds, devices)


class Advanced(NamedTuple):
    """What a call of the loop returns."""

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
    metrics: step.SearchMetrics
    """Metrics of reported iterations, in such arrays."""


class _Progress(NamedTuple):
    """What an iteration changes."""

    state: SearchState
    info: StepInfo
    first_failures: Int[Array, "..."]
    everything_failed: Bool[Array, ""]


class FusedProgram:
    """Both programs, for any numbers and arrays of the same shapes."""

    def __init__(self, static: Static, num_seeds: int, devices: tuple[Any, ...]):
        self.is_checked = False
        """True if the evaluation of the domain is known to fit the archive."""
        self._static = static
        self._one_seed = num_seeds == len(devices)  # on each device
        self._one_device = len(devices) == 1
        begin, loop = self._begin_seeds, self._run_iterations
        if not self._one_device:
            mesh = Mesh(np.array(devices), ("seeds",))
            shard = partial(jax.shard_map, mesh=mesh, check_vma=False)
            begin = shard(begin, in_specs=(_SHARED, _BY_SEED, _BY_SEED), out_specs=_PLACES)
            loop = shard(loop, in_specs=(_SHARED, _PLACES, _SHARED), out_specs=_RESULT)
        self._begin = jax.jit(begin)
        # Lengths are arguments, so that every stretch uses the same program.
        self._loop = jax.jit(loop, donate_argnums=1)
        self._lock = threading.Lock()
        self._compiled_begin: Future[Callable] | None = None
        self._compiled_loop: Future[Callable] | None = None

    def start(self, arrays: Any, keys: Any, x0s: Any) -> None:
        """Compile both programs in parallel, in the background."""

        def compile_both() -> None:
            self._compile_both(arrays, keys, x0s)

        with_fallback(compile_both, compile_both)

    def first_state(self, arrays: Any, keys: Any, x0s: Any) -> SearchState:
        """Return the state of all seeds at iteration 0."""

        def program() -> Callable:
            self.start(arrays, keys, x0s)
            assert self._compiled_begin is not None
            return self._finished(self._compiled_begin)

        return with_fallback(program, program)(arrays, keys, x0s)

    def state_shapes(self, arrays: Any, keys: Any, x0s: Any) -> Any:
        """Return the shapes of the state of all seeds."""
        return jax.eval_shape(self._begin, arrays, keys, x0s)

    def advance(self, arrays: Any, state: SearchState, last: int, log_every: int) -> "Advanced":
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

    def _compile_both(self, arrays: Any, keys: Any, x0s: Any) -> None:
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

    def _begin_seeds(self, arrays: Any, keys: Any, x0s: Any) -> SearchState:
        _, algorithm = self._static.with_arrays(arrays)
        if self._one_seed:
            return _map_seeds(lambda leaf: leaf[None], step.init(algorithm, keys[0], x0s[0]))
        return jax.vmap(partial(step.init, algorithm), out_axes=_AXES)(keys, x0s)

    def _run_iterations(self, arrays: Any, state: SearchState, stops: Any) -> "Advanced":
        domain, algorithm = self._static.with_arrays(arrays)
        last, log_every = stops
        advance = partial(step.step, algorithm, domain)
        metrics = partial(step.metrics, algorithm)
        if self._one_seed:  # faster than a batch of one
            state = _map_seeds(lambda leaf: leaf[0], state)
        else:
            advance = jax.vmap(advance, in_axes=(_AXES,), out_axes=(_AXES, 0))
            metrics = jax.vmap(metrics, in_axes=(_AXES,))
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
        def goes_on(progress: _Progress, stop: Any) -> Any:
            return (progress.state.iteration < stop) & ~progress.everything_failed

        # Several rows of metrics in one call, because a GPU takes milliseconds to start a program.
        def next_row(carry: tuple[_Progress, Any, Any]) -> tuple[_Progress, Any, Any]:
            progress, rows, number = carry
            stop = jnp.minimum((progress.state.iteration // log_every + 1) * log_every, last)
            progress = jax.lax.while_loop(partial(goes_on, stop=stop), next_iteration, progress)
            state = progress.state
            row = state.iteration, _without_training_set(progress.info), metrics(state)
            put = partial(jax.lax.dynamic_update_index_in_dim, index=number, axis=0)
            return progress, jax.tree.map(put, rows, row), number + 1

        info = _zeros_like(jax.eval_shape(advance, state)[1])
        row = state.iteration, _without_training_set(info), jax.eval_shape(metrics, state)
        rows = _zeros_like(row, (MOST_ROWS,))
        progress = _Progress(state, info, jnp.zeros_like(info.failed), jnp.zeros((), bool))
        progress, rows, _ = jax.lax.while_loop(
            lambda carry: goes_on(carry[0], last), next_row, (progress, rows, jnp.int32(0))
        )
        state, info, first_failures, everything_failed = progress
        iterations, infos, found = rows
        if self._one_seed:
            state = _map_seeds(lambda leaf: leaf[None], state)
            info, first_failures = jax.tree.map(lambda leaf: leaf[None], (info, first_failures))
            infos, found = jax.tree.map(lambda leaf: leaf[:, None], (infos, found))
        return Advanced(state, info, first_failures, everything_failed, iterations, infos, found)


def _zeros_like(shapes: Any, leading: tuple[int, ...] = ()) -> Any:
    return jax.tree.map(lambda s: jnp.zeros((*leading, *s.shape), s.dtype), shapes)


def _without_training_set(info: StepInfo) -> StepInfo:
    """Return what every row of metrics needs; the training set is for snapshots."""
    parts = lambda info: (info.fit.points, info.fit.targets, info.fit.is_trained)  # noqa: E731
    return eqx.tree_at(parts, info, (None, None, None))


def _by_seed(each: Any, shared: Any) -> Any:
    """Return ``each`` for the parts of a state that seeds have of their own, ``shared`` for others.

    All seeds share the iteration. Conditions on it stay conditions under `jax.vmap`; on a batched
    number both branches would be computed.
    """
    # Not by the constructor, because shapes of arrays are checked there in the tests.
    spec = object.__new__(SearchState)
    for field in dataclasses.fields(SearchState):
        part = shared if field.name == "iteration" else each
        object.__setattr__(spec, field.name, part)
    return spec


_AXES = _by_seed(0, None)
_BY_SEED, _SHARED = PartitionSpec("seeds"), PartitionSpec()
_PLACES = _by_seed(_BY_SEED, _SHARED)
_ROWS = PartitionSpec(None, "seeds")
_RESULT = Advanced(_PLACES, _BY_SEED, _BY_SEED, _SHARED, _SHARED, _ROWS, _ROWS)  # pyright: ignore


def _map_seeds(function: Callable, state: SearchState) -> SearchState:
    iteration = state.iteration
    state = jax.tree.map(function, eqx.tree_at(lambda s: s.iteration, state, iteration[None]))
    return eqx.tree_at(lambda s: s.iteration, state, iteration)
