"""Links, tables of results and Python of the documentation are right."""

import importlib
import importlib.util
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from PIL import Image

import gloam
import gloam.interop.gymnasium
import gloam.interop.ribs
from gloam import cli
from gloam._tools import files
from gloam.algorithms import dms
from gloam.cli import main
from tests.explorer.page import Page, chromium
from tests.problems import few_emitters

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("research/**/*.md")])
SIZES = {
    "range(100)": "range(2)",
    "10_000": "4",
    "1_000": "4",
    "range(20)": "range(2)",
    "1000": "4",
}
SIZES |= {"iterations=200": "iterations=3", "iterations=400": "iterations=5", " 50,": " 4,"}
SIZES |= {"iterations=10,": "iterations=2,", "algorithm, 100,": "algorithm, 2,"}
SIZES |= {"(100, 300)": "(2, 3)", "iterations=50,": "iterations=3,"}
SIZES |= {"iterations=500": "iterations=5"}
# Workers in this process: those of another one import everything again.
SIZES |= {"LocalCluster(n_workers=2,": "LocalCluster(n_workers=2, processes=False,"}


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


ALGORITHMS = {
    "DMS": "dms",
    "`gloam.DMS`": "dms",
    "DMS (paper)": "dms-paper",
    "DMS with gradients": "dms-gradients",
    "`gloam.DMS.paper`": "dms-paper",
    "CMA-MAE": "cma-mae",
    "MAP-Elites (line)": "map-elites-line",
    "MAP-Elites": "map-elites",
}


def tables(page: Path) -> list[list[list[str]]]:
    """Cells of the tables of a page, by row."""
    found = re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE)
    rows = [[line.strip("|").split("|") for line in table.splitlines()] for table in found]
    return [[[cell.strip(" *") for cell in row] for row in table] for table in rows]


@pytest.mark.parametrize("page", ["README.md", "docs/results/README.md", "research/study.md"])
def test_scores_of_tables_are_those_of_the_study(page):
    results = ROOT / "research" / "results"
    files = [pd.read_csv(results / place) for place in ("results.csv", "ta/results.csv")]
    known = pd.concat(files).set_index(["domain", "algorithm"])[["qd_score", "qd_score_error"]]
    if page != "research/study.md":  # the study is that of an earlier default
        default = pd.read_csv(results / "default.csv").set_index(["domain", "algorithm"])
        older = known[~known.index.isin(default.index)]
        known = pd.concat([older, default])[["qd_score", "qd_score_error"]]
    checked = 0
    for header, _, *rows in tables(ROOT / page):
        for row in rows:
            title = row[0].partition(",")[0].lower().replace("f-mnist", "fashion-mnist")
            domain = re.sub(r"[ ()]+", "-", title).strip("-")
            for name, cell in zip(header[1:], row[1:], strict=True):
                place = domain, ALGORITHMS.get(name)
                if place not in known.index or " ± " not in cell:
                    continue
                for text, value in zip(cell.split(" ± "), known.loc[place], strict=True):
                    digits = len(text.partition(".")[2])
                    assert float(text.replace(",", "")) == round(value, digits), (row[0], name)
                checked += 1
    assert checked >= 8


def test_metrics_of_the_study_are_those_of_its_seeds():
    rows = pd.read_csv(ROOT / "research" / "results" / "seeds.csv")
    means = rows.groupby(["domain", "algorithm"]).mean(numeric_only=True)
    page = ROOT / "docs/results/README.md"
    (table,) = [t for t in tables(page) if t[0][:2] == ["domain", "loss"]]
    names, _, *lines = table
    assert len(lines) == rows["domain"].nunique()
    for domain, *cells in lines:
        for name, cell in zip(names[1:], cells, strict=True):
            for algorithm, text in zip(("dms", "dms-paper"), cell.split(" / "), strict=True):
                digits = len(text.partition(".")[2])
                assert float(text) == round(means.loc[(domain, algorithm), name], digits), domain


def test_shares_of_the_suite_are_those_of_its_table():
    table = pd.read_csv(ROOT / "research" / "results" / "foreign" / "table.csv")
    own = table[table["contender"] == "DMS"]
    held_out = own[own["half"] == "held out"]
    text = " ".join((ROOT / "README.md").read_text().split())
    numbers = len(own), 100 * own["is_best"].mean(), len(held_out), 100 * held_out["is_best"].mean()
    found = re.search(r"On (\d+) problems .*? (\d+)%; of the (\d+) .*? (\d+)%", text)
    assert found is not None
    assert [int(number) for number in found.groups()] == [round(number) for number in numbers]


# The test for plots below runs this.
RUN_ELSEWHERE = {"docs/plots.md"}
NEEDED = {"docs/running-at-scale.md": "distributed", "docs/generators.md": "torch"}
NEEDED |= {"docs/from-pyribs.md": "torch"}
# A line "*Needs ...*" stands before code that cannot run here, and tells readers why.
CODE = re.compile(
    r"(?:^\*Needs (?P<needs>[^*]+)\*\n\n)?^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
# The pages that are read first. The code of the others compiles many more programs.
QUICK = {"docs/tutorial.md", "docs/callbacks.md"}
LONG = {f"docs/{name}.md" for name in ("recipes", "variables", "extending", "running-at-scale")}
SLOW, RELEASE = [pytest.mark.slow], [pytest.mark.release]
PYTHON_PAGES = [
    pytest.param(name, marks=[] if name in QUICK else RELEASE if name in LONG else SLOW)
    for page in PAGES
    if CODE.search(page.read_text()) and (name := str(page.relative_to(ROOT))) not in RUN_ELSEWHERE
]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The current folder, with what the pages say that it has: pictures, and a function."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Without optimization (conftest.py), k-means over 10,000 cells would take minutes.
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path / "cache"))
    edge = gloam.domains.LinearProjection(10).edge
    centroids = np.random.default_rng(0).uniform(-edge, edge, (10_000, 10)).astype(np.float32)
    files.write_array(tmp_path / "cache" / "lp-10d-100.npy", centroids)
    # Another test imports a file of this name, too.
    monkeypatch.delitem(sys.modules, "my_problem", raising=False)
    main(["new", "my_problem.py", "--size", "16", "16", "--mode", "RGB"])
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (9, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    yield tmp_path
    pyplot.close("all")


# Number of blocks that have the whole `gloam.DMS`. The others have fewer emitters.
WHOLE = {"README.md": 2, "docs/extending.md": 1}


def names_after(page: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Run the blocks of a page in order, at small size; returns the variables that they leave."""
    names: dict = {"__name__": "page"}
    for number, match in enumerate(CODE.finditer((ROOT / page).read_text())):
        if number == WHOLE.get(page, 0):
            monkeypatch.setattr(dms, "_mixture", few_emitters)
        if match["needs"]:
            continue
        block = match["code"]
        for large, small in SIZES.items():
            block = block.replace(large, small)
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_python_of_a_page_runs(page, workplace, monkeypatch):
    if page in NEEDED:
        pytest.importorskip(NEEDED[page], reason=f"{page} uses it")
    names = names_after(page, monkeypatch)
    check = CHECKS.get(page)
    if check:
        check(names)


def check_readme(names):
    assert names["result"].elites.coverage > 0
    assert names["search"].iteration == 2


def check_generators(names):
    decoder = names["LinearDecoder"](jax.random.normal(jax.random.key(0), (8, 3 * 32 * 32)))
    assert decoder.images(decoder.map(jnp.ones((2, 8)))).shape == (2, 3, 32, 32)
    assert len(names["result"].elites) > 0


def check_elites(names):
    both, one, other = names["both"], names["elites"], names["other"].elites
    assert both.coverage > max(one.coverage, other.coverage)
    assert len(names["table"]) == len(one)
    assert Path("elites.csv").is_file()


def check_extending(names):
    # A solution that came again was not evaluated again, and every part was used.
    assert 0 < len(names["evaluator"].known) <= 36
    assert names["search"].metrics()["loss"] >= 0
    assert len(names["result"].elites) > 1


def check_tutorial(names):
    assert names["result"].metrics["iteration"].iloc[-1] == 5
    assert len(names["table"]) > 10


CHECKS = {
    "README.md": check_readme,
    "docs/generators.md": check_generators,
    "docs/elites.md": check_elites,
    "docs/extending.md": check_extending,
    "docs/tutorial.md": check_tutorial,
}


def test_examples_of_extensions_are_short():
    text = (ROOT / "docs" / "extending.md").read_text()
    blocks = [match["code"] for match in CODE.finditer(text)]
    assert len(blocks) >= 6
    assert max(block.count("\n") for block in blocks) < 40


def test_code_that_needs_something_is_left_out(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n*Needs a file.*\n\n```python\nraise RuntimeError\n```\n"
        "\n```python\ny = x + 1\n```\n"
    )
    names = names_after(str(page), monkeypatch)
    assert (names["x"], names["y"]) == (1, 2)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_readers_see_all_code_that_runs_and_no_python_passes_as_text(page):
    text = page.read_text()
    assert "<!-- python" not in text
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    others = [block for language, block in blocks if language != "python"]
    assert not [block for block in others if re.search(r"^\s*(import|from|def) ", block, re.M)]


def script(name: str) -> ModuleType:
    """A module of scripts/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    return pages


def test_every_public_name_is_in_the_reference():
    pages = script("reference_pages").reference_pages()
    described = set(re.findall(r"^::: ([\w.]+)$", "\n".join(pages.values()), re.MULTILINE))
    objects = {id(_found(name)) for name in described}
    assert len(objects) == len(described), "something is described twice"
    public = [package.name for package in script("reference_pages").public_packages()]
    rooms = "archives datasets discounts domains emitters errors evaluators gallery plots callbacks"
    assert {*public} >= {f"gloam.{room}" for room in rooms.split()}
    assert {*public} >= {"gloam", "gloam_lab", "gloam_lab.latent_illumination"}
    for package in map(importlib.import_module, public):
        for name, value in vars(package).items():
            # A package passes on names of its modules; a module has only its own.
            is_package = hasattr(package, "__path__")
            within = package.__name__.partition(".")[0] if is_package else package.__name__
            is_gloams = getattr(value, "__module__", "").startswith(within)
            if is_gloams and not name.startswith("_") and callable(value):
                assert id(value) in objects, f"{package.__name__}.{name}"


def _found(name: str):
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_every_argument_has_an_entry_of_its_own_in_the_reference():
    pytest.importorskip("griffe", reason="`make docs` installs it")
    text = (
        "Box.\n\nArgs:\n    x: One.\n    low, high: Bounds,\n        as numbers.\n"
        "\nExample:\n    >>> 1"
    )
    assert script("docs_examples").complete(text) == (
        "Box.\n\nArgs:\n    x: One.\n    low: Bounds,\n        as numbers.\n"
        "    high: Bounds,\n        as numbers.\n\nExamples:\n    >>> 1"
    )


def test_what_pages_load_from_other_hosts_is_found():
    pytest.importorskip("mkdocs", reason="`make docs` installs it")
    found = script("docs_hooks").loaded_from_elsewhere
    assert found('<script src="https://a.org/x.js">') == ["https://a.org/x.js"]
    assert found("<link rel=stylesheet href=//a.org/x.css>") == ["//a.org/x.css"]
    assert found('<link href="https://a.org/x.css" rel="stylesheet">') == ["https://a.org/x.css"]
    assert found('<a href="https://a.org"><img src="x.png"><script src="a//b.js">') == []


def test_the_page_of_the_command_line_has_every_command():
    page = script("command_line_page").command_line_page()
    commands = set(re.findall(r"^## gloam (\S+)", page, re.MULTILINE))
    entries = metadata.entry_points(group="gloam.commands")
    assert commands == {*cli._COMMANDS, *(entry.name for entry in entries)}
    assert "## gloam run dms latent-digits" in page
    assert "## gloam lsi check" in page
    assert page.count("usage: gloam") == page.count("\n## ")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built without warnings."""
    pytest.importorskip("mkdocs", reason="`make docs` installs it")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place


def described(site: Path, page: str, name: str) -> str:
    """The text of the reference about an object."""
    text = (site / "reference" / page).read_text()
    _, _, after = text.partition(f'id="{name}" class="doc doc-heading"')
    own, _, _ = after.partition('<h2 id="gloam.')
    return " ".join(re.sub(r"<[^>]+>", " ", own).split())


@pytest.mark.slow
def test_the_site_has_examples_and_complete_descriptions(site):
    assert (site / "examples" / "black_box.html").is_file()
    assert "ask and tell" in (site / "examples" / "first_steps.html").read_text()
    assert 'href="examples/black_box.html"' in (site / "examples.html").read_text()
    batch = described(site, "records.html", "gloam.records.Batch")
    assert "objectives : Float" in batch
    assert "learning_rate float" in described(site, "gloam.html", "gloam.DMS")
    archive = described(site, "gloam.html", "gloam.CVTArchive")
    assert "lower Bounds | None" in archive
    assert archive.count("required") == 1  # the centroids
    assert described(site, "gloam.html", "gloam.run").count("required") == 3


@pytest.mark.slow
def test_the_search_of_the_site_works_from_disk(site):
    with chromium() as driver:
        page = Page(driver, 1280, 860, False)
        page.open((site / "index.html").as_uri())
        page.run("document.querySelector('[data-md-toggle=search]').click()")
        page.type(".md-search__input", "restart")
        page.wait("document.querySelector('.md-search-result__item h1')")
        assert page.errors() == []


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
    assert len(figures) == 16
    assert all(figure.axes for figure in figures)
    images = {image for _, image in parts if image}
    assert images == {f"images/plots/{p.name}" for p in (ROOT / "docs/images/plots").iterdir()}
