"""Links, file names and Python of the documentation are right."""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

import gloam
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
    planned = {"interop/"}
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


def test_models_of_the_users_own_run_as_the_generators_page_has_them():
    pytest.importorskip("torch", reason="the page has a model in PyTorch")
    text = (ROOT / "docs" / "generators.md").read_text()
    section = text.partition("## Your own model")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    names: dict = {"gloam": gloam}
    for block in blocks:
        exec(compile(block, "generators.md", "exec"), names)
    decoder = names["LinearDecoder"](jax.random.normal(jax.random.key(0), (8, 3 * 32 * 32)))
    assert decoder.images(decoder.map(jnp.ones((2, 8)))).shape == (2, 3, 32, 32)
    assert len(names["result"].elites) > 0
