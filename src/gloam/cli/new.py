"""`gloam new`: an example file for `gloam fill`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gloam import checks
from gloam.cli.outputs import write_new


@dataclasses.dataclass(frozen=True)
class New:
    """Write an example Python file for `gloam fill`, with a function and a start."""

    file: Annotated[Path, tyro.conf.Positional] = Path("my_problem.py")
    """Name of the new file."""

    def __call__(self) -> None:
        """Write the file."""
        checks.expect(self.file.suffix == ".py", "file", "a name that ends in .py", str(self.file))
        template = Path(__file__).with_name("template.py").read_text(encoding="utf-8")
        write_new(self.file, template.replace("FILE", str(self.file)))
        print(f"{self.file}\nTo run it: gloam fill {self.file} --dataset digits")
