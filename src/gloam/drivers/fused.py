"""The fused driver: whole stretches of iterations in one compiled program, all seeds at once.

With several devices the seeds are dealt out to them, and every device runs its own. Nothing passes
between devices, because nothing passes between seeds.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from gloam import checks, step
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.discounts import TorchNetwork
from gloam.draws import root_key
from gloam.drivers.compiling import compiled
from gloam.drivers.evaluation import evaluation_parts, flat_rows
from gloam.drivers.low_objectives import warn_of_low_objectives
from gloam.drivers.rows import metric_columns, metric_rows, snapshot_arrays
from gloam.records import Report, SearchState


def _by_seed(each: Any, shared: Any) -> Any:
    """A state's parts: ``each`` where seeds have their own, ``shared`` for the iteration.

    Because all seeds share the iteration, conditions on it stay conditions; on a batched number
    they would compute both branches.
    """
    return SearchState(each, shared, each, each, each, each, each)


_AXES = _by_seed(0, None)
_BY_SEED, _SHARED = PartitionSpec("seeds"), PartitionSpec()
_PLACES = _by_seed(_BY_SEED, _SHARED)


class Fused:
    """All seeds of one search as one program on the device."""

    def __init__(self, domain: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.instance("algorithm", algorithm, Algorithm)
        checks.expect(callable(domain), "domain", "a function of a batch of solutions",
                      type(domain).__name__)  # fmt: skip
        _check_on_device(algorithm)
        _check_evaluation(domain, algorithm)
        self.seeds = seeds
        self.algorithm = algorithm
        self.batch = algorithm.emitter.solutions
        arrays, static = eqx.partition((domain, algorithm), eqx.is_array)
        devices = _devices_for(len(seeds))
        alone = len(seeds) == len(devices)  # a device has one seed only

        def begin(arrays: Any, keys: Any) -> SearchState:
            _, algorithm = eqx.combine(arrays, static)
            return jax.vmap(lambda key: step.init(algorithm, key), out_axes=_AXES)(keys)

        def stretch(arrays: Any, state: SearchState, iterations: Any):
            domain, algorithm = eqx.combine(arrays, static)

            def evaluate(solutions: Any) -> step.Evaluation:
                objectives, measures, fields = evaluation_parts(domain(solutions))
                return objectives, flat_rows(measures), fields

            def one(state: SearchState) -> tuple[SearchState, Report]:
                return step.step(algorithm, evaluate, state)

            advance = one if alone else jax.vmap(one, in_axes=(_AXES,), out_axes=(_AXES, 0))
            advance = jax.jit(advance, inline=True)  # traced once for its shapes and for the loop
            if alone:  # one seed gains from not being a batch of one
                state = _map_seeds(lambda leaf: leaf[0], state)
            shapes = jax.eval_shape(advance, state)[1]
            nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            state, report = jax.lax.fori_loop(
                0, iterations, lambda _, carry: advance(carry[0]), (state, nothing)
            )
            if alone:
                state = _map_seeds(lambda leaf: leaf[None], state)
                report = jax.tree.map(lambda leaf: leaf[None], report)
            figures = jax.vmap(lambda state: step.inspect(algorithm, state), (_AXES,))(state)
            return state, (report, figures)

        if len(devices) > 1:
            mesh = Mesh(np.array(devices), ("seeds",))
            begin = jax.shard_map(begin, mesh=mesh, in_specs=(_SHARED, _BY_SEED),
                                  out_specs=_PLACES, check_vma=False)  # fmt: skip
            stretch = jax.shard_map(stretch, mesh=mesh, in_specs=(_SHARED, _PLACES, _SHARED),
                                    out_specs=(_PLACES, _BY_SEED), check_vma=False)  # fmt: skip
        self._arrays = arrays
        self._begin = jax.jit(begin)
        # The number of iterations is an argument, so that no stretch compiles anew.
        self._stretch = jax.jit(stretch, donate_argnums=1)
        self._one_device = len(devices) == 1
        self._beginning: Future[Callable] | None = None
        self._compiling: Future[Callable] | None = None
        self._program: Callable | None = None
        self._report: Report | None = None
        self._columns: dict[str, np.ndarray] = {}
        self._state: SearchState | None = None
        self._has_warned = False

    @property
    def state(self) -> SearchState:
        """The states of all seeds. Waits for what `start` has begun."""
        state = self._state
        if state is None:
            assert self._beginning is not None, "start() or restore() comes first"
            state = self._state = self._beginning.result()(self._arrays, _keys(self.seeds))
        return state  # pyright: ignore[reportReturnType]

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self.state.iteration)

    def start(self) -> None:
        """Begin at iteration 0: both programs compile side by side, while the caller goes on."""
        begin = self._begin.trace(self._arrays, _keys(self.seeds))
        pool = ThreadPoolExecutor(2)  # for compiling only: settings of JAX are by thread

        def compile_begin() -> None:
            self._beginning = pool.submit(compiled, begin.lower())

        def compile_stretch() -> None:
            if self._one_device:
                stretch = self._stretch.lower(self._arrays, begin.out_info, jnp.int32(1))
                self._compiling = pool.submit(compiled, stretch)

        # The larger program goes first where compiling it is what takes longest. A CPU has few
        # cores, and better uses one for the smaller program while Python writes the larger.
        tasks = [compile_stretch, compile_begin]
        for task in reversed(tasks) if jax.default_backend() == "cpu" else tasks:
            task()
        pool.shutdown(wait=False)

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        self._state = read(jax.eval_shape(self._begin, self._arrays, _keys(self.seeds)))

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        length = jnp.int32(iterations)
        if self._program is None and self._compiling is not None:
            self._program = self._compiling.result()
        elif self._program is None:
            self._program = compiled(self._stretch.lower(self._arrays, self.state, length))
        self._state, (report, figures) = self._program(self._arrays, self.state, length)
        # What the discount was trained on stays on the device until a snapshot wants it.
        self._report, self._columns = report, metric_columns(report, figures)
        self._warn_of_low_objectives()
        checks.some_valid(self.batch - int(self._columns["failed"].max()), self.batch)

    def _warn_of_low_objectives(self) -> None:
        """Warn once when a seed has had a batch most of which lay below f_min."""
        low = jax.device_get(self.state.low)
        if not self._has_warned and low.batches.any():
            self._has_warned = True
            lowest = float(low.lowest[low.batches > 0].min())
            warn_of_low_objectives(lowest, self.algorithm.archive.f_min, stacklevel=6)

    def rows(self) -> list[dict[str, Any]]:
        """The figures of each seed after the last iteration."""
        return metric_rows(self.seeds, self.iteration, self.batch, self._columns)

    def archives(self) -> list[Elites]:
        """The elites of each seed."""
        store = jax.tree.map(np.asarray, self.state.store)
        return [
            Elites(self.algorithm.archive, jax.tree.map(lambda leaf, i=i: leaf[i], store))
            for i in range(len(self.seeds))
        ]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed as it is now."""
        assert self._report is not None, "there is no iteration to picture yet"
        fit, discount = jax.tree.map(lambda leaf: leaf[0], (self._report.fit, self.state.discount))
        return snapshot_arrays(self.state.store.objectives[0], discount, fit)


def _devices_for(seeds: int) -> list[Any]:
    """As many devices as can have equal shares of the seeds."""
    devices = jax.local_devices()
    return devices[: max(n for n in range(1, len(devices) + 1) if seeds % n == 0)]


def _keys(seeds: list[int]) -> Any:
    return jnp.stack([root_key(seed) for seed in seeds])


def _map_seeds(function: Callable, state: SearchState) -> SearchState:
    iteration = state.iteration
    state = jax.tree.map(function, eqx.tree_at(lambda s: s.iteration, state, iteration[None]))
    return eqx.tree_at(lambda s: s.iteration, state, iteration)


def _check_on_device(algorithm: Algorithm) -> None:
    """Refuse a network that another library computes."""

    def foreign(part: Any) -> bool:
        return isinstance(part, TorchNetwork)

    found = any(map(foreign, jax.tree.leaves(algorithm, is_leaf=foreign)))
    checks.expect(not found, "network", "one that JAX computes", "a TorchNetwork",
                  "Convert it by gloam.discounts.from_torch, or search in Python: gloam.optimize, "
                  "or gloam.Search.")  # fmt: skip


def _check_evaluation(domain: Callable, algorithm: Algorithm) -> None:
    """Trace the domain once, without running it, and check what comes out."""
    batch, archive = algorithm.emitter.solutions, algorithm.archive
    solutions = jax.ShapeDtypeStruct((batch, algorithm.emitter.x0.shape[0]), jnp.float32)
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
        checks.expect(objectives.shape == (batch,), "objectives", f"shape {(batch,)}",
                      f"shape {objectives.shape} from the domain")  # fmt: skip
        _check_real("objectives", objectives.dtype)
    _check_real("measures", measures.dtype)
    shapes = checks.measure_shapes(batch, archive.measure_shape)
    checks.expect(measures.shape in shapes, "measures",
                  f"shape {checks.one_of(shapes)}, as the archive has",
                  f"shape {measures.shape} from the domain")  # fmt: skip
    checks.same_names("fields", archive.fields, fields)


def _check_real(name: str, dtype: Any) -> None:
    """Refuse what cannot become float32 without losing a part of it."""
    kinds = jnp.floating, jnp.integer
    checks.expect(
        any(jnp.issubdtype(dtype, kind) for kind in kinds),
        name,
        "real numbers (floats or integers)",
        f"{dtype} from the domain",
    )
