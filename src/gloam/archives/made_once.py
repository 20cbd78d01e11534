"""What is made of an array when it is first needed, and forgotten with the array.

Archives are frozen, and copies of them share their arrays. So what is expensive to make, and not
always needed, is kept beside them: it is no part of their equality, of files or of programs.
"""

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from jaxtyping import Array


class MadeOnce:
    """Values by array and key. A value may not hold on to its array."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, Hashable], Any] = {}
        self._lock = threading.RLock()

    def get(self, array: Array, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value for ``array`` and ``key``; ``make`` makes it at the first call."""
        place = (id(array), key)
        with self._lock:
            if place not in self._values:
                self._values[place] = make()
                # An id is free for another array only after this was called.
                weakref.finalize(array, self._values.pop, place, None).atexit = False
            return self._values[place]
