"""The warning of objectives below the archive's f_min, which both drivers give once."""

import warnings

from gloam.algorithms import Algorithm


def warn_of_low_objectives(lowest: float, algorithm: Algorithm, *, stacklevel: int) -> None:
    """Warn that most objectives of a batch lie below ``f_min``, where that does harm.

    Args:
        lowest: The lowest objective seen.
        algorithm: A discount that estimates the range of objectives needs no warning.
        stacklevel: Of `warnings.warn`, counted from the caller.
    """
    if not algorithm.discount.starts_at_f_min:
        return
    f_min = algorithm.archive.f_min
    warnings.warn(
        f"objectives: expected values at or above the archive's f_min = {f_min:g}, got {lowest:g}, "
        "and at least half of a batch below f_min. A discount starts at f_min, so such solutions "
        "do not count as improvements, and they lower the QD score. Set f_min=... of the archive "
        f"at or below the lowest objective that you expect, here {lowest:g} or less.",
        stacklevel=stacklevel + 1,
    )
