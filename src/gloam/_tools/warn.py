"""Warnings that name the line of the user that led to them."""

import sys
import warnings

# Modules of gloam, and of context managers that it uses.
_SKIPPED = {"gloam", "gloam_lab", "contextlib"}


class GloamWarning(UserWarning):
    """A warning of gloam."""


def warn(message: str, category: type[GloamWarning] = GloamWarning) -> None:
    """Issue a warning at the innermost line outside of gloam."""
    # From Python 3.12 on, `skip_file_prefixes` does this.
    frame, level = sys._getframe(1), 2
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
