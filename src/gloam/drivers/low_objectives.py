"""The warning of objectives below the archive's f_min, which both drivers give once."""

import warnings


def warn_of_low_objectives(lowest: float, f_min: float, *, stacklevel: int) -> None:
    """Warn that most objectives of a batch lie below ``f_min``.

    Args:
        lowest: The lowest objective seen.
        f_min: That of the archive.
        stacklevel: Of `warnings.warn`, counted from the caller.
    """
    warnings.warn(
        f"objectives: expected values at or above the archive's f_min = {f_min:g}, got {lowest:g}, "
        "and at least half of a batch below f_min. A discount starts at f_min, so such solutions "
        "do not count as improvements, and they lower the QD score. Set f_min=... of the archive "
        f"at or below the lowest objective that you expect, here {lowest:g} or less.",
        stacklevel=stacklevel + 1,
    )
