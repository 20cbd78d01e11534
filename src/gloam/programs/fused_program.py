"""Compiler options for whole searches on a GPU.

The programs of the fused driver: the start of all seeds, and a stretch of iterations.

Compiled programs are kept, so that another run of the same shapes finds them: see
`gloam.programs.splitting`. Only the last few, because a program may hold on to a user's function.
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
from gloam.kernels import with_plain_twins
from gloam.programs.splitting import Rest
from gloam.records import SearchState, StepInfo
from gloam.searches.search import evaluation_parts, flat_rows

# An iteration is over a hundred short kernels and a few loops and branches. As parts of one graph
# they need not ask the host before every turn whether to go on. Choosing a kernel for each product
# by trial takes longer than it saves in 10,000 iterations (docs/performance.md).
_GPU = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,COLLECTIVES,"
    "CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_gpu_enable_triton_gemm": False,
}


def compiler_options() -> dict[str, Any]:
    """Options that suit the device of this thread: `jax.default_device` is set by thread."""
    return _GPU if on_cuda() else {}


def compiled(lowered: Any, options: dict[str, Any]) -> Callable:
    """The program, compiled with these options if XLA knows them."""
    if options:
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            # Options come and go with versions of XLA. Without them programs are only slower.
            if "INVALID_ARGUMENT" not in str(error):
                raise
    return lowered.compile()


_KEPT = 8


def _by_seed(each: Any, shared: Any) -> Any:
    """A state's parts: ``each`` where seeds have their own, ``shared`` for the iteration.

    Because all seeds share the iteration, conditions on it stay conditions; on a batched number
    they would compute both branches.
    """
    # Not by the constructor: these are no arrays, and shapes are checked there in the test run.
    spec = object.__new__(SearchState)
    for field in dataclasses.fields(SearchState):
        part = shared if field.name == "iteration" else each
        object.__setattr__(spec, field.name, part)
    return spec


_AXES = _by_seed(0, None)
_BY_SEED, _SHARED = PartitionSpec("seeds"), PartitionSpec()
_PLACES = _by_seed(_BY_SEED, _SHARED)


class FusedProgram:
    """Both programs for a domain, an algorithm and a number of seeds, of any numbers and arrays.

    Args:
        rest: Of a domain and an algorithm, by `gloam.programs.splitting.split`.
        seeds: Number of seeds.
        devices: What they are dealt out to, in equal shares.
    """

    def __init__(self, rest: Rest, seeds: int, devices: tuple[Any, ...]):
        self.checked = False
        """Whether the domain's evaluation was found to fit the archive."""
        self._rest = rest
        self._alone = seeds == len(devices)  # a device has one seed only
        begin, stretch = self._begin_seeds, self._run_stretch
        if len(devices) > 1:
            mesh = Mesh(np.array(devices), ("seeds",))
            begin = jax.shard_map(
                begin,
                mesh=mesh,
                in_specs=(_SHARED, _BY_SEED, _BY_SEED),
                out_specs=_PLACES,
                check_vma=False,
            )
            stretch = jax.shard_map(
                stretch,
                mesh=mesh,
                in_specs=(_SHARED, _PLACES, _SHARED),
                out_specs=(_PLACES, _BY_SEED),
                check_vma=False,
            )
        self.begin = jax.jit(begin)
        # The number of iterations is an argument, so that no stretch compiles anew.
        self.stretch = jax.jit(stretch, donate_argnums=1)
        self._one_device = len(devices) == 1
        self._lock = threading.Lock()
        self._beginning: Future[Callable] | None = None
        self._compiling: Future[Callable] | None = None

    def start(self, arrays: Any, keys: Any, x0s: Any) -> None:
        """Compile both programs side by side, while the caller goes on."""

        def compile_both() -> None:
            self._compile_both(arrays, keys, x0s)

        with_plain_twins(compile_both, compile_both)

    def _compile_both(self, arrays: Any, keys: Any, x0s: Any) -> None:
        with self._lock:
            if self._beginning is not None:
                return
            begin = self.begin.trace(arrays, keys, x0s)
            pool = ThreadPoolExecutor(2)  # for compiling only: settings of JAX are by thread
            options = compiler_options()

            def compile_begin() -> None:
                self._beginning = pool.submit(compiled, begin.lower(), options)

            def compile_stretch() -> None:
                if self._one_device and self._compiling is None:
                    stretch = self.stretch.lower(arrays, begin.out_info, jnp.int32(1))
                    self._compiling = pool.submit(compiled, stretch, options)

            # The larger program goes first where compiling it is what takes longest. A CPU has few
            # cores, and better uses one for the smaller program while Python writes the larger.
            tasks = [compile_stretch, compile_begin]
            for task in reversed(tasks) if runs_on_cpu() else tasks:
                task()
            pool.shutdown(wait=False)

    def first_state(self, arrays: Any, keys: Any, x0s: Any) -> SearchState:
        """The state of all seeds at iteration 0. Waits for what `start` has begun."""

        def program() -> Callable:
            self.start(arrays, keys, x0s)
            assert self._beginning is not None
            return self._finished(self._beginning)

        return with_plain_twins(program, program)(arrays, keys, x0s)

    def state_shapes(self, arrays: Any, keys: Any, x0s: Any) -> Any:
        """Shapes of the state of all seeds."""
        return jax.eval_shape(self.begin, arrays, keys, x0s)

    def advance(self, arrays: Any, state: SearchState, iterations: int) -> Any:
        """The state after some iterations, and what they report.

        Returns:
            The state, and of each seed the report and the metrics of the last iteration, and the
            first iteration in which its whole batch failed (0 without any).
        """
        length = jnp.int32(iterations)

        def program() -> Callable:
            with self._lock:
                if self._compiling is None:
                    lowered = self.stretch.lower(arrays, state, length)
                    stretch = compiled(lowered, compiler_options())
                    self._compiling = Future()
                    self._compiling.set_result(stretch)
            return self._finished(self._compiling)

        return with_plain_twins(program, program)(arrays, state, length)

    def _finished(self, program: "Future[Callable]") -> Callable:
        """A program when it is compiled. After a failure (of memory, say) it can be tried again."""
        try:
            return program.result()
        except Exception:
            self._beginning = self._compiling = None
            raise

    def _begin_seeds(self, arrays: Any, keys: Any, x0s: Any) -> SearchState:
        _, algorithm = self._rest.with_arrays(arrays)
        begin = partial(step.init, algorithm)
        return jax.vmap(begin, out_axes=_AXES)(keys, x0s)

    def _run_stretch(self, arrays: Any, state: SearchState, iterations: Any) -> Any:
        domain, algorithm = self._rest.with_arrays(arrays)

        def evaluate(solutions: Any) -> step.Evaluation:
            objectives, measures, fields = evaluation_parts(domain(solutions))
            return objectives, flat_rows(measures), fields

        def one(state: SearchState) -> tuple[SearchState, StepInfo]:
            return step.step(algorithm, evaluate, state)

        advance = one if self._alone else jax.vmap(one, in_axes=(_AXES,), out_axes=(_AXES, 0))
        advance = jax.jit(advance, inline=True)  # traced once for its shapes and for the loop
        if self._alone:  # one seed gains from not being a batch of one
            state = _map_seeds(lambda leaf: leaf[0], state)
        shapes = jax.eval_shape(advance, state)[1]
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        last = state.iteration + iterations

        def unfinished(carry: tuple[SearchState, StepInfo, Any, Any]) -> Any:
            state, _, _, everything_failed = carry
            return (state.iteration < last) & ~everything_failed

        def next_iteration(carry: tuple[SearchState, StepInfo, Any, Any]) -> Any:
            state, _, first_failure, _ = carry
            state, report = advance(state)
            failed = report.failed == algorithm.emitter.num_solutions
            first = failed & (first_failure == 0)
            first_failure = jnp.where(first, state.iteration, first_failure)
            everything_failed = jnp.all(failed)
            if not self._one_device:  # the devices stop together, or not at all
                everything_failed = jax.lax.pmin(everything_failed.astype(jnp.int32), "seeds") > 0
            return state, report, first_failure, everything_failed

        # The loop ends at the very iteration in which no seed has a result, wherever stretches end.
        carry = (state, nothing, jnp.zeros_like(nothing.failed), jnp.zeros((), bool))
        carry = jax.lax.while_loop(unfinished, next_iteration, carry)
        state, report, first_failure, _ = carry
        if self._alone:
            state = _map_seeds(lambda leaf: leaf[None], state)
            report = jax.tree.map(lambda leaf: leaf[None], report)
            first_failure = first_failure[None]
        found = jax.vmap(lambda state: step.metrics(algorithm, state), (_AXES,))(state)
        return state, (report, found, first_failure)


@lru_cache(maxsize=_KEPT)
def fused_program(
    rest: Rest, shapes: Any, seeds: int, devices: tuple[Any, ...], surroundings: tuple[Any, ...]
) -> FusedProgram:
    """The programs for such arguments: those that were compiled before, if they are still kept.

    ``shapes`` and ``surroundings`` only tell programs apart that must be compiled separately.
    """
    del shapes, surroundings
    return FusedProgram(rest, seeds, devices)


def _map_seeds(function: Callable, state: SearchState) -> SearchState:
    iteration = state.iteration
    state = jax.tree.map(function, eqx.tree_at(lambda s: s.iteration, state, iteration[None]))
    return eqx.tree_at(lambda s: s.iteration, state, iteration)
