"""What drivers of evaluations in Python have in common: a search and failures for each seed."""

from typing import Any, Generic, TypeVar

import numpy as np

from gloam.archives import Elites
from gloam.drivers.async_search import AsyncSearch
from gloam.drivers.failures import FailureLog
from gloam.drivers.search import Search
from gloam.formats import RunFolder

_Search = TypeVar("_Search", Search, AsyncSearch)


class HostDriver(Generic[_Search]):
    """Reports on the searches of all seeds."""

    searches: list[_Search]
    _log: FailureLog

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, if there are new ones."""
        self._log.write(folder)
