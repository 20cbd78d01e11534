"""griffe extension that renders the examples of docstrings as code in the API reference.

Docstrings of gloam use the headings ``Example:`` and ``Examples:``; griffe knows only the second.
"""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the heading ``Example:`` to ``Examples:``."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the heading in the docstring of an object."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
