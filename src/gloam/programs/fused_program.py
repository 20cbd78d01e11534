"""The programs of `gloam.run`: the first state of all seeds, and a loop of iterations.

With several devices the seeds are distributed in equal shares. No data passes between seeds.
"""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from gloam import step
from gloam.devices import on_cuda, runs_on_cpu
from gloam.kernels import with_fallback
from gloam.programs.sharing import Static
from gloam.records import SearchState, StepInfo

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
# An iteration consists of over a hundred short kernels and a few loops and branches. In one graph
# they do not wait for the host. Autotuning of products takes longer than it saves in 10,000
# iterations (docs/performance.md).
_CUDA_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,COLLECTIVES,"
    "CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_gpu_enable_triton_gemm": False,
}


def fused_program(
    static: Static, arrays: Any, num_seeds: int, devices: tuple[Any, ...]
) -> "FusedProgram":
    """Return the programs for a domain and an algorithm, compiled before if they are still kept.

    Args:
        static: Static part of ``(domain, algorithm)``, by `gloam.programs.sharing.partition`.
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
            loop = shard(loop, in_specs=(_SHARED, _PLACES, _SHARED), out_specs=(_PLACES, _BY_SEED))
        self._begin = jax.jit(begin)
        # The number of iterations is an argument, so that every stretch uses the same program.
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

    def advance(self, arrays: Any, state: SearchState, iterations: int) -> Any:
        """Run iterations. The memory of ``state`` is reused.

        Returns:
            The state, and for each seed the diagnostics and the metrics of the last iteration, and
            the first iteration in which its whole batch failed (0 if there was none).
        """
        length = np.int32(iterations)

        def program() -> Callable:
            with self._lock:
                if self._compiled_loop is None:
                    lowered = self._loop.lower(arrays, state, length)
                    self._compiled_loop = Future()
                    self._compiled_loop.set_result(_compiled(lowered, _compiler_options()))
            return self._finished(self._compiled_loop)

        return with_fallback(program, program)(arrays, state, length)

    def _compile_both(self, arrays: Any, keys: Any, x0s: Any) -> None:
        with self._lock:
            if self._compiled_begin is not None:
                return
            begin = self._begin.trace(arrays, keys, x0s)
            pool = ThreadPoolExecutor(2)
            options = _compiler_options()  # here, because settings of JAX are by thread

            def compile_begin() -> None:
                self._compiled_begin = pool.submit(_compiled, begin.lower(), options)

            def compile_loop() -> None:
                if self._one_device and self._compiled_loop is None:
                    loop = self._loop.lower(arrays, begin.out_info, np.int32(1))
                    self._compiled_loop = pool.submit(_compiled, loop, options)

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

    def _run_iterations(self, arrays: Any, state: SearchState, iterations: Any) -> Any:
        domain, algorithm = self._static.with_arrays(arrays)
        advance = partial(step.step, algorithm, domain)
        metrics = partial(step.metrics, algorithm)
        if self._one_seed:  # faster than a batch of one
            state = _map_seeds(lambda leaf: leaf[0], state)
        else:
            advance = jax.vmap(advance, in_axes=(_AXES,), out_axes=(_AXES, 0))
        advance = jax.jit(advance, inline=True)  # traced once for its shapes and for the loop
        shapes = jax.eval_shape(advance, state)[1]
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        last = state.iteration + iterations

        def unfinished(carry: tuple[SearchState, StepInfo, Any, Any]) -> Any:
            state, _, _, everything_failed = carry
            return (state.iteration < last) & ~everything_failed

        def next_iteration(carry: tuple[SearchState, StepInfo, Any, Any]) -> Any:
            state, _, first_failure, _ = carry
            state, info = advance(state)
            failed = info.failed == algorithm.emitter.num_solutions
            first = failed & (first_failure == 0)
            first_failure = jnp.where(first, state.iteration, first_failure)
            everything_failed = jnp.all(failed)
            if not self._one_device:  # all devices stop together
                everything_failed = jax.lax.pmin(everything_failed.astype(jnp.int32), "seeds") > 0
            return state, info, first_failure, everything_failed

        # The loop ends at the iteration in which the batches of all seeds fail, so that the result
        # does not depend on the lengths of stretches.
        carry = (state, nothing, jnp.zeros_like(nothing.failed), jnp.zeros((), bool))
        state, info, first_failure, _ = jax.lax.while_loop(unfinished, next_iteration, carry)
        if not self._one_seed:
            return state, (info, jax.vmap(metrics, (_AXES,))(state), first_failure)
        report = jax.tree.map(lambda leaf: leaf[None], (info, metrics(state), first_failure))
        return _map_seeds(lambda leaf: leaf[None], state), report


def _compiler_options() -> dict[str, Any]:
    return _CUDA_OPTIONS if on_cuda() else {}


def _compiled(lowered: Any, options: dict[str, Any]) -> Callable:
    """Compile a program, with these options if XLA knows them."""
    if options:
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            # Options come and go with versions of XLA. Without them programs are only slower.
            if "INVALID_ARGUMENT" not in str(error):
                raise
    return lowered.compile()


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


def _map_seeds(function: Callable, state: SearchState) -> SearchState:
    iteration = state.iteration
    state = jax.tree.map(function, eqx.tree_at(lambda s: s.iteration, state, iteration[None]))
    return eqx.tree_at(lambda s: s.iteration, state, iteration)
