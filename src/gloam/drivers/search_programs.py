"""The verbs of an ask-tell search as compiled programs."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from gloam import kernels, step
from gloam.drivers.splitting import Rest
from gloam.records import Proposal, SearchState

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
