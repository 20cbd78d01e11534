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
    places = (ROOT, ROOT / "src" / "gloam")
    folders = [folder for folder in (ROOT / "src" / "gloam").iterdir() if folder.is_dir()]
    for name in set(named):
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


# Pages whose every block of Python runs, in order, with the sizes that they have.
RUNNABLE = ["docs/callbacks.md", "docs/from-pyribs.md", "docs/from-qdax.md"]


@pytest.mark.parametrize("page", RUNNABLE)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if "pyribs" in page:
        pytest.importorskip("ribs", reason="the page has a program for pyribs")
        pytest.importorskip("torch", reason="pyribs' discount model needs PyTorch")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


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


def test_the_python_of_the_elites_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "elites.md").read_text()
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block.replace(" 50,", " 4,"), "elites.md", "exec"), names)
    both, one, other = names["both"], names["elites"], names["other"].elites
    assert both.coverage > max(one.coverage, other.coverage)
    assert len(names["table"]) == len(one)
    assert (tmp_path / "elites.csv").is_file()
    assert capsys.readouterr().out.startswith("Elites(")


PLOTS_SIZES = {
    "snapshots=[20, 150]": "snapshots=[1, 2]",
    "iteration=20": "iteration=1",
    "150": "2",
    '"log_every": 10': '"log_every": 1',
    "(50, 50)": "(10, 10)",
    "(400, ": "(20, ",
    "(2000, ": "(30, ",
    "subsample(60)": "subsample(12)",
}


@pytest.mark.slow
def test_the_python_of_the_plots_page_runs_and_every_picture_has_its_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "plots.md").read_text()
    parts = re.findall(r"```python\n(.*?)```|!\[[^\]]*\]\((images/plots/[^)]+)\)", text, re.DOTALL)
    names: dict = {}
    figures = []
    for code, image in parts:
        for large, small in PLOTS_SIZES.items():
            code = code.replace(large, small)
        exec(compile(code, "plots.md", "exec"), names)
        if image:
            figures.append(names.pop("figure"))
            assert (ROOT / "docs" / image).stat().st_size < 150_000
    assert len(figures) == 14
    assert all(figure.axes for figure in figures)
    images = {image for _, image in parts if image}
    assert images == {f"images/plots/{p.name}" for p in (ROOT / "docs/images/plots").iterdir()}
