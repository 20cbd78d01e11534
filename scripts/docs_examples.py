"""An extension of griffe: the examples of docstrings are code in the API reference.

gloam's docstrings have a heading ``Example:`` or ``Examples:``; griffe knows the second alone.
"""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the heading."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every object that is found."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
