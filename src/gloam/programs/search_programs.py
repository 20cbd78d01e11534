"""The verbs of an ask-tell search as compiled programs.

The verbs of an asynchronous search as compiled programs.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from gloam import kernels, step
from gloam.programs.splitting import Rest
from gloam.records import Proposal, SearchState
from gloam.searches import part_step

# Programs that are kept for another search of the same shapes. Not more, because a program may hold
# on to a user's network.
_KEPT = 8


class SearchPrograms(NamedTuple):
    """The verbs of a search as compiled programs, for any numbers and arrays of its shapes."""

    init: Callable
    ask: Callable
    tell: Callable
    metrics: Callable


@lru_cache(maxsize=_KEPT)
def search_programs(rest: Rest, shapes: Any, surroundings: tuple[Any, ...]) -> SearchPrograms:
    """Those of an earlier search like this, if they are still kept."""
    del shapes, surroundings  # they only tell programs apart

    def init(arrays: Any, key: Any, x0: Any) -> SearchState:
        return step.init(rest.with_arrays(arrays), key, x0)

    def ask(arrays: Any, state: SearchState) -> Proposal:
        return step.ask(rest.with_arrays(arrays), state)

    def tell(arrays: Any, state: SearchState, proposal: Any, evaluation: Any, cells: Any):
        return step.tell(rest.with_arrays(arrays), state, proposal, evaluation, cells)

    def metrics(arrays: Any, state: SearchState) -> step.SearchMetrics:
        return step.metrics(rest.with_arrays(arrays), state)

    jit = kernels.jit
    return SearchPrograms(jit(init), jit(ask), jit(tell, donate_argnums=1), jit(metrics))


_ASYNC_PROGRAMS_KEPT = 8  # as in `gloam.programs.search_programs`


class AsyncPrograms(NamedTuple):
    """The verbs as compiled programs, for any numbers and arrays of an algorithm's shapes."""

    ask: Callable
    add: Callable
    """Its state is donated."""
    add_to_copy: Callable
    """As `add`, but the state given stays."""
    adapt: Callable
    train: Callable


@lru_cache(maxsize=_ASYNC_PROGRAMS_KEPT)
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
