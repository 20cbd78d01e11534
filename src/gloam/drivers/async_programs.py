"""The verbs of an asynchronous search as compiled programs."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from gloam import kernels, part_step
from gloam.drivers.splitting import Rest
from gloam.records import SearchState

_KEPT = 8  # as in `gloam.drivers.search_programs`


class AsyncPrograms(NamedTuple):
    """The verbs as compiled programs, for any numbers and arrays of an algorithm's shapes."""

    ask: Callable
    add: Callable
    """Its state is donated."""
    add_to_copy: Callable
    """As `add`, but the state given stays."""
    adapt: Callable
    train: Callable


@lru_cache(maxsize=_KEPT)
def async_programs(rest: Rest, shapes: Any, surroundings: tuple[Any, ...]) -> AsyncPrograms:
    """Those of an earlier search like this, if they are still kept.

    ``rest`` is that of an algorithm and a part of its emitter.
    """
    del shapes, surroundings  # they only tell programs apart

    def ask(arrays: Any, state: SearchState, index: Any, generation: Any):
        algorithm, part = rest.with_arrays(arrays)
        return part_step.ask_part(algorithm, part, state, index, generation)

    def add(arrays: Any, state: SearchState, *rows: Any):
        return part_step.add_rows(rest.with_arrays(arrays)[0], state, *rows)

    def adapt(arrays: Any, state: SearchState, index: Any, generation: Any, *rows: Any):
        algorithm, part = rest.with_arrays(arrays)
        return part_step.adapt_part(algorithm, part, state, index, generation, *rows)

    def train(arrays: Any, state: SearchState, batch: Any):
        return part_step.train(rest.with_arrays(arrays)[0], state, batch)

    jit = kernels.jit
    return AsyncPrograms(
        jit(ask),
        jit(add, donate_argnums=1),
        jit(add),
        jit(adapt, donate_argnums=1),
        jit(train, donate_argnums=1),
    )
