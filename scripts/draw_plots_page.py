"""Draw the pictures of docs/plots.md by running the code of that page.

    python scripts/draw_plots_page.py

Each picture shows the variable ``figure`` of the code above it. Files go to docs/images/plots.
"""

import os
import re
import tempfile
from pathlib import Path

from gloam._tools import files

PAGE = Path(__file__).parents[1] / "docs" / "plots.md"
_PARTS = re.compile(r"```python\n(?P<code>.*?)```|!\[[^\]]*\]\((?P<image>[^)]+)\)", re.DOTALL)
_DPI = 72


def main() -> None:
    """Run the code blocks in order and save their figures."""
    names: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in _PARTS.finditer(PAGE.read_text()):
            if part["code"]:
                exec(compile(part["code"], PAGE.name, "exec"), names)
                continue
            small = names["figure"]
            small.set_dpi(_DPI)
            path = PAGE.parent / part["image"]
            files.write(
                path, lambda file, figure=small: figure.savefig(file, format="png", dpi=_DPI)
            )
            print(path.name, path.stat().st_size // 1024, "kB")
        os.chdir(PAGE.parent)


if __name__ == "__main__":
    main()
