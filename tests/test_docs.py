"""Links, file names and Python of the documentation are right."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from gloam.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SIZES = {"range(100)": "range(2)", "10_000": "4", "range(20)": "range(2)", "1000": "4"}


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as they are formed for links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {text.replace(" ", "-") for text in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place) if place else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_are_named_exist(page):
    named = re.findall(r"`([\w/]+(?:\.py|/))`", (ROOT / page).read_text())
    planned = {"interop/", "explorer/"}
    places = (ROOT, ROOT / "src" / "gloam")
    folders = [folder for folder in (ROOT / "src" / "gloam").iterdir() if folder.is_dir()]
    for name in set(named) - planned:
        assert any((place / name).exists() for place in (*places, *folders)), name


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Another test imports a file of this name, too.
    monkeypatch.delitem(sys.modules, "my_problem", raising=False)
    main(["new", "my_problem.py"])
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (9, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        for large, small in SIZES.items():
            block = block.replace(large, small)
        exec(compile(block, "README.md", "exec"), names)
    pyplot.close("all")
    assert names["result"].elites.coverage > 0
    assert names["search"].iteration == 2
