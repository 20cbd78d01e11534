"""The fused driver: whole stretches of iterations in one compiled program, all seeds at once.

With several devices the seeds are dealt out to them, and every device runs its own. Nothing passes
between devices, because nothing passes between seeds.
"""

from collections.abc import Callable
from typing import Any
from typing import Literal
import jax
import jax.numpy as jnp
import numpy as np
from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.devices import usable_devices
from gloam.draws import root_key
from gloam.searches.search import evaluation_parts
from gloam.runs.failures import warn_of_failed_batch
from gloam.programs.fused_program import fused_program
from gloam.searches.search import warn_of_low_objectives
from gloam.searches.search import metric_columns
from gloam.searches.search import metric_rows
from gloam.searches.search import snapshot_arrays
from gloam.programs.splitting import for_programs
from gloam.programs.splitting import shapes_of
from gloam.programs.splitting import split
from gloam.programs.splitting import surroundings
from gloam.runs.options import start_of
from gloam.formats import RunFolder
from gloam.records import SearchState
from gloam.records import StepInfo


class FusedDriver:
    """All seeds of one search as one program on the device."""

    kind: Literal["fused", "ask-tell"] = "fused"

    def __init__(self, domain: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.instance("algorithm", algorithm, Algorithm)
        checks.expect(
            callable(domain), "domain", "a function of a batch of solutions", type(domain).__name__
        )
        size, of = len(seeds) * algorithm.size_of_elites, f"the elites of {len(seeds)} seeds"
        checks.fits_memory("seeds", size, of)
        self.seeds = seeds
        self.algorithm = algorithm
        self.batch = algorithm.emitter.num_solutions
        self._keys = _keys(seeds)
        self._x0s = jnp.asarray(np.stack([start_of(domain, algorithm, seed) for seed in seeds]))
        self._arrays, rest = split((domain, for_programs(algorithm)))
        shapes = shapes_of((self._arrays, self._keys, self._x0s))
        devices = tuple(_devices_for(len(seeds)))
        self._program = fused_program(rest, shapes, len(seeds), devices, surroundings())
        if not self._program.checked:
            _check_evaluation(domain, algorithm)
            self._program.checked = True
        self._report: StepInfo | None = None
        self._columns: dict[str, np.ndarray] = {}
        self._state: SearchState | None = None
        self._warned: set[int] = set()
        self._has_warned = False

    @property
    def state(self) -> SearchState:
        """The states of all seeds. Waits for what `start` has begun."""
        if self._state is None:
            self._state = self._program.first_state(self._arrays, self._keys, self._x0s)
        return self._state

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self.state.iteration)

    def start(self) -> None:
        """Begin at iteration 0: both programs compile side by side, while the caller goes on."""
        self._program.start(self._arrays, self._keys, self._x0s)

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        self._state = read(self._program.state_shapes(self._arrays, self._keys, self._x0s))

    def advance(self, iterations: int) -> None:
        """Run some iterations.

        A seed whose whole batch fails goes on, and is named in a warning once.

        Raises:
            EvaluationError: In some iteration the batches of all seeds failed. It is the last of
                the state, which is whole, whatever the number of iterations asked for.
        """
        done = self._program.advance(self._arrays, self.state, iterations)
        self._state, (report, found, first_failures) = done
        # What the discount was trained on stays on the device until a snapshot wants it.
        self._report, self._columns = report, metric_columns(report, found)
        self._warn_of_low_objectives()
        everything_failed = bool((self._columns["failed"] == self.batch).all())
        # What fails in the iteration that is an error needs no warning.
        self._warn_of_failures(first_failures, before=self.iteration + (not everything_failed))
        if everything_failed:
            raise checks.EvaluationError(
                f"evaluation: expected at least one finite result in iteration {self.iteration}, "
                f"got none among {self.batch} solutions of each of {len(self.seeds)} seeds. "
                "Every objective or measure was NaN or infinite: check the evaluation function "
                "on x0, and that x0 and sigma0 keep solutions in its domain."
            )

    def _warn_of_failures(self, first_failures: Any, *, before: int) -> None:
        """Name the seeds of which a whole batch failed before an iteration, each once."""
        for seed, at in zip(self.seeds, np.asarray(first_failures).tolist(), strict=True):
            if 0 < at < before and seed not in self._warned:
                self._warned.add(seed)
                warn_of_failed_batch(self.batch, seed, at, stacklevel=2)

    def _warn_of_low_objectives(self) -> None:
        """Warn once when a seed has had a batch most of which lay below f_min."""
        low = jax.device_get(self.state.low)
        if not self._has_warned and low.batches.any():
            self._has_warned = True
            lowest = float(low.lowest[low.batches > 0].min())
            warn_of_low_objectives(lowest, self.algorithm, stacklevel=7)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return metric_rows(self.seeds, self.iteration, self.batch, self._columns)

    def elites(self) -> list[Elites]:
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

    def write_failures(self, folder: RunFolder) -> None:
        """Write nothing: a compiled program counts failures and keeps none."""

    def read_failures(self, folder: RunFolder) -> None:
        """Read nothing."""


def _devices_for(seeds: int) -> list[Any]:
    """As many devices as can have equal shares of the seeds."""
    devices = usable_devices()
    return devices[: max(n for n in range(1, len(devices) + 1) if seeds % n == 0)]


def _keys(seeds: list[int]) -> Any:
    return jnp.stack([root_key(seed) for seed in seeds])


def _check_evaluation(domain: Callable, algorithm: Algorithm) -> None:
    """Trace the domain once, without running it, and check what comes out."""
    batch, archive = algorithm.emitter.num_solutions, algorithm.archive
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
        checks.expect(
            objectives.shape == (batch,),
            "objectives",
            f"shape {(batch,)}",
            f"shape {objectives.shape} from the domain",
        )
        _check_real("objectives", objectives.dtype)
    _check_real("measures", measures.dtype)
    shapes = checks.measure_shapes(batch, archive.measure_shape)
    checks.expect(
        measures.shape in shapes,
        "measures",
        f"shape {checks.one_of(shapes)}, as the archive has",
        f"shape {measures.shape} from the domain",
    )
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
