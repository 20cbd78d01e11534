"""griffe extension that shows the examples of docstrings as code in the API reference.

gloam's docstrings have a heading ``Example:`` or ``Examples:``; griffe only knows the second.
"""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the heading ``Example:``."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every documented object."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
