"""Where seeds start: at the algorithm's ``x0``, or each where its domain says."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam import checks
from gloam.algorithms import Algorithm


def start_of(domain: Callable, algorithm: Algorithm, seed: int) -> Float[np.ndarray, " sol"]:
    """The start of a seed.

    A domain may have a start for each seed (``domain.x0_of(seed)``). It is used where the algorithm
    was built with the domain's own ``x0``; an algorithm with another ``x0`` starts all seeds there.
    """
    own = np.asarray(algorithm.emitter.x0)
    x0_of: Any = getattr(domain, "x0_of", None)
    if x0_of is None or not np.array_equal(own, np.asarray(getattr(domain, "x0", None))):
        return own
    start = checks.finite_array("x0_of", x0_of(seed), ndim=1)
    checks.expect(
        start.shape == own.shape,
        "x0_of",
        f"{own.size} numbers, as x0 has",
        f"{start.size} for seed {seed}",
    )
    return start
