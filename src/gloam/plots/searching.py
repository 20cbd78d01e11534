"""A search in memory, as a source of figures besides run folders."""

import os
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.formats import RunFolder
from gloam.plots.moments import Moment


@runtime_checkable
class Searching(Protocol):
    """A search in memory, such as `gloam.Search`."""

    algorithm: Algorithm
    state: Any

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays of the search after the last `tell`."""
        ...


Source = RunFolder | str | os.PathLike | Searching
"""Where the discount function is taken from: a run folder, its path, or a search in memory."""


def moment_of_search(search: Searching) -> Moment:
    """A search in memory, after its last `tell`."""
    iteration = int(search.state.iteration)
    fix = "Call ask() and tell() first."
    checks.expect(iteration > 0, "search", "at least one finished iteration", "none", fix)
    arrays = search.snapshot()
    trained = {name: arrays[name] for name in ("points", "targets", "real")}
    return Moment(iteration, arrays["objectives"], search.state.discount, **trained)
