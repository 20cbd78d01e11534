"""Every command of the tutorial runs, in order, on a folder of pictures made here."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gloam
from gloam.cli import main

# Fewer iterations than a reader runs; all else is as the tutorial has it.
SIZES = {"--iterations 150": "--iterations 15", "--iterations 300": "--iterations 60"}
SIZES |= {"--iterations 200": "--iterations 15", "--iterations 400": "--iterations 100"}
TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with pictures of two kinds, of several sizes, and a file that is none."""
    folder = tmp_path_factory.mktemp("tutorial")
    random = np.random.default_rng(0)
    for kind in ("dark", "light"):
        (folder / "pictures" / kind).mkdir(parents=True)
        for number in range(12):
            rows, columns = random.integers(9, 40, 2)
            level = 40 if kind == "dark" else 180
            pixels = random.integers(level, level + 60, (rows, columns), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / kind / f"{number}.png")
    return folder


@pytest.mark.slow
def test_every_command_runs(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    commands = [line for block in blocks("bash") for line in block.splitlines() if line]
    assert len(commands) == 8
    assert all(any(size in command for command in commands) for size in SIZES)
    for command in commands:
        for shown, small in SIZES.items():
            command = command.replace(shown, small)
        program, *arguments = shlex.split(command)
        assert program == "gloam"
        main(arguments)
    printed = capsys.readouterr().out
    assert "24 items of shape (8, 8)" in printed
    assert "24 items of shape (16, 16, 3)" in printed
    for run in ("digits", "pictures", "color"):
        folder = workplace / "runs" / run
        with Image.open(folder / "figures" / "gallery.png") as picture:
            assert picture.width > 500
        assert "<html" in (folder / "gallery.html").read_text()
    assert (workplace / "runs" / "pictures" / "figures" / "curves.png").is_file()
    # The run was resumed at 60, where its first part ended, and not started again.
    iterations = gloam.RunFolder("runs/pictures").read_metrics()["iteration"]
    assert iterations.tolist() == [50, 60, 100]

    # The Python of the tutorial, beside the file that `gloam new` wrote.
    monkeypatch.syspath_prepend(str(workplace))
    (program,) = [block for block in blocks("python") if "my_problem" in block]
    exec(compile(program, str(TUTORIAL), "exec"), {})
    assert "unseen items:" in capsys.readouterr().out
