"""`gloam new`: an example file for `gloam fill`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gloam import checks
from gloam.cli.outputs import write_new


@dataclasses.dataclass(frozen=True)
class New:
    """Write an example Python file for `gloam fill`, with a function and a start."""

    file: Annotated[Path, tyro.conf.Positional] = Path("my_problem.py")
    """Name of the new file."""
    size: tuple[int, int] = (8, 8)
    """Height and width of the images that the function draws."""
    mode: Literal["L", "RGB"] = "L"
    """Greyscale (L) or colour (RGB)."""

    def __call__(self) -> None:
        """Write the file."""
        checks.expect(self.file.suffix == ".py", "file", "a name that ends in .py", str(self.file))
        height, width = (checks.integer("size", side, minimum=1) for side in self.size)
        channels = 3 if self.mode == "RGB" else 1
        # scikit-learn's digits have 8 x 8 pixels.
        dataset = "digits" if (height, width, channels) == (8, 8, 1) else "pictures/"
        text = Path(__file__).with_name("template.py").read_text(encoding="utf-8")
        text = text.replace("FILE --dataset digits", f"{self.file} --dataset {dataset}")
        text = text.replace(
            "WIDTH, CHANNELS = 8, 8, 1", f"WIDTH, CHANNELS = {height}, {width}, {channels}"
        )
        write_new(self.file, text)
        print(f"{self.file}\nTo run it: gloam fill {self.file} --dataset {dataset}")
        if dataset == "digits":
            print(f"With a folder of your images: gloam fill {self.file} --dataset FOLDER")
