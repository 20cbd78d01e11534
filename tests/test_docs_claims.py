"""What the documentation says that a program can check: names, commands, files, numbers."""

import ast
import contextlib
import functools
import importlib
import inspect
import io
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import gloam
import gloam_lab
from gloam import cli
from gloam._tools import compiler
from gloam.archives import faiss_index, targets
from gloam.callbacks import stopping
from gloam.emitters import (
    adaptive_mixture,
    aimed_emitters,
    aimed_moves,
    cma_emitters,
    discrete,
    emitter,
)
from gloam.explorer import app, archive_view, cell_view, html_report, server, summaries
from gloam.formats import documents, ownership, tables
from gloam.runs import failures, fused_driver
from gloam_lab import arborescences
from gloam_lab.latent_illumination import experiment as lsi
from tests.test_docs import ROOT, script
from tests.test_docs import tables as tables_of

pytestmark = pytest.mark.slow  # all pages are read

PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
OURS = ("gloam.", "gloam_lab.")
TOP = {path.name for path in ROOT.iterdir()}
# Files that readers write themselves, folders that commands make, and files of other projects.
READERS = {"first.py", "search.py", "simulate.py", "my_problem.py", "my_program.py", "color.py"}
MADE = {"runs/", "site/", *(f"{name}/" for name in ownership.FOLDERS)}


class Code(NamedTuple):
    """The code of a page: blocks of Python, lines of other blocks, and what is in backticks."""

    python: list[str]
    lines: list[str]
    inline: list[str]


@functools.cache
def code_of(page: Path) -> Code:
    """Return the code of a page."""
    text = page.read_text()
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?:(?<=\n\n)|^)(?: {4}.*\n)+", text)
    lines = [line for block in indented for line in block.splitlines()]
    lines += [line for kind, code in fences if kind == "bash" for line in code.splitlines()]
    for block in indented:
        text = text.replace(block, "")
    inline = [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    return Code(
        [code for kind, code in fences if kind == "python"], [s.strip() for s in lines], inline
    )


def sentences(page: str) -> str:
    """Return the text of a page without line breaks."""
    return " ".join((ROOT / page).read_text().split())


def expressions(page: Path) -> Iterator[ast.AST]:
    """Yield the syntax trees of a page: blocks, and the inline code and lines that are Python."""
    code = code_of(page)
    for text in (*code.python, *code.lines, *code.inline):
        with contextlib.suppress(SyntaxError):
            yield ast.parse(text)


# Names


@functools.cache
def public_names() -> dict[str, set[str]]:
    """Return the names of the API reference, by public package."""
    packages = script("reference_pages").public_packages()
    return {package.name: set(package.homes) for package in packages}


def dotted(node: ast.AST) -> str:
    """Return the dotted name that an expression is, or an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def attribute(owner: object, name: str) -> object:
    """Return an attribute; the class itself for fields, which only instances have."""
    kinds = owner.__mro__ if isinstance(owner, type) and not hasattr(owner, name) else ()
    for kind in kinds:
        if name in vars(kind).get("__annotations__", {}):
            return owner
        is_own = kind.__module__.startswith("gloam")
        if is_own and re.search(rf"self\.{name}\b.* = ", inspect.getsource(kind)):
            return owner
    return getattr(owner, name)


def public_object(name: str) -> object:
    """Return the object of a dotted name.

    Raises:
        AttributeError: There is none, or it is private by docs/stability.md.
    """
    package, *parts = name.split(".")
    value: object = importlib.import_module(package)
    for part in parts:
        if not isinstance(value, ModuleType):
            value = attribute(value, part)
            continue
        path = f"{value.__name__}.{part}"
        if path in public_names():
            value = importlib.import_module(path)
        elif part in public_names()[value.__name__]:
            value = getattr(value, part)
        else:
            raise AttributeError(f"{path} is not a public name")
    return value


def names_of(page: Path) -> set[str]:
    """Return the dotted names on a page that begin with ``gloam`` or ``gloam_lab``."""
    names = set()
    for tree in expressions(page):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and dotted(node).startswith(OURS):
                names.add(dotted(node))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gloam"):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    # Also of inline code that is no Python, such as `search.tell(..., vjp=)`.
    inline = " ".join(code_of(page).inline)
    return names | set(re.findall(r"(?<![\w/.])gloam(?:_lab)?(?:\.\w+)+", inline))


@EACH_PAGE
def test_names_are_public(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = set(project["entry-points"])
    for name in names_of(page) - {"gloam.lock", "gloam.archives.store"} - groups:
        public_object(name)


def test_the_name_that_stands_for_private_ones_is_private():
    assert "`gloam.archives.store`" in (ROOT / "docs/stability.md").read_text()
    with pytest.raises(AttributeError, match=r"gloam\.archives\.store is not a public name"):
        public_object("gloam.archives.store")
    with pytest.raises(AttributeError, match="no_such_name"):
        public_object("gloam.Elites.no_such_name")


@pytest.mark.parametrize(
    "folder",
    sorted({p.parent for p in (ROOT / "src").rglob("*.py")}),
    ids=lambda folder: folder.name,
)
def test_names_in_docstrings_exist(folder):
    for file in folder.glob("*.py"):
        for name in re.findall(r"(?<!`)`(gloam(?:\.\w+)+)", file.read_text()):
            value: object = gloam
            for part in name.split(".")[1:]:
                if isinstance(value, ModuleType) and not hasattr(value, part):
                    value = importlib.import_module(f"{value.__name__}.{part}")
                else:
                    value = attribute(value, part)


# Variables of the pages, by the name that they usually have.
VARIABLES = {
    "elite": gloam.archives.Elite,
    "elites": gloam.Elites,
    "matches": gloam.datasets.Matches,
    "result": gloam.Result,
    "search": gloam.Search,
    "space": gloam.Space,
    "state": gloam.records.SearchState,
    "step": gloam.step,
}


@EACH_PAGE
def test_attributes_of_results_exist(page):
    for name in re.findall(r"(?<![\w.])[a-z]+\.\w+", " ".join(code_of(page).inline)):
        variable, _, member = name.partition(".")
        if variable in VARIABLES and not re.fullmatch(r"py|csv|parquet", member):
            is_ticket = name == "search.seed_of"
            attribute(gloam.AsyncSearch if is_ticket else VARIABLES[variable], member)


def calls_of(page: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of public functions and classes on a page."""
    for tree in expressions(page):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and dotted(node.func).startswith(OURS):
                yield dotted(node.func), node


@EACH_PAGE
def test_calls_have_arguments_that_exist(page):
    for name, call in calls_of(page):
        function = public_object(name)
        if not callable(function) or name == "gloam.DMS.paper":  # checked with those of DMS
            function = gloam.DMS
        names = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        inspect.signature(function).bind_partial(*call.args, **dict.fromkeys(names))


# Commands


def command_lines(page: Path, program: str) -> set[str]:
    """Return the commands of a page that begin with a program, without comments."""
    code = code_of(page)
    lines = [line.partition(" # ")[0].strip() for line in (*code.lines, *code.inline)]
    return {line for line in lines if line.startswith(f"{program} ")}


@functools.cache
def parses(arguments: tuple[str, ...]) -> bool:
    """Return whether the command line accepts arguments; nothing is run."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli._parsed(list(arguments))
        except SystemExit as error:
            return error.code == 0
    return True


@functools.cache
def helps() -> dict[str, str]:
    """Return the help texts of all commands."""
    page = script("command_line_page").command_line_page()
    return {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}


@EACH_PAGE
def test_commands_exist_with_their_options(page):
    lines = set(code_of(page).lines)
    for line in command_lines(page, "gloam"):
        arguments = shlex.split(line)[1:]
        if parses(tuple(arguments)):
            continue
        # Text may name a part of a command, such as `gloam lsi run dms --gradients`.
        assert line not in lines, line
        known = [name for name in helps() if f"{line} ".startswith(f"{name} ") and " " in name]
        assert known, line
        command = max(known, key=len)
        for word in arguments[command.count(" ") :]:
            is_file = re.search(r"[./]|^[A-Z]+$", word)
            assert is_file or re.search(rf"(?<![\w-]){word}\b", helps()[command]), (line, word)


@EACH_PAGE
def test_options_exist(page):
    named = {code.split()[0] for code in code_of(page).inline if re.match(r"--\w", code)}
    scripts = re.findall(r"(?:benchmarks|examples|scripts)/\w+\.py", page.read_text())
    texts = [*helps().values(), *(options_of(ROOT / name) for name in scripts)]
    for option in named:
        assert any(re.search(rf"{option}\b", text) for text in texts), option


def options_of(file: Path) -> str:
    """Return the text of a script, with its parameters also as options of tyro."""
    text = file.read_text()
    return text + "".join(f"\n--{name.replace('_', '-')} " for name in re.findall(r"(\w+): ", text))


@EACH_PAGE
def test_scripts_exist_with_their_options(page):
    for line in command_lines(page, "python"):
        name, *arguments = shlex.split(line)[1:]
        if name.startswith("-") or name in READERS:
            continue
        text = options_of(ROOT / name)
        options = [word.strip("[]") for word in arguments if word.strip("[").startswith("--")]
        before = arguments[: next((i for i, a in enumerate(arguments) if "--" in a), None)]
        commands = [word for word in before if word.isidentifier()]
        for word in (*options, *commands):
            assert re.search(rf"(?<![\w-]){word}\b", text), (line, word)


@EACH_PAGE
def test_targets_extras_and_tests_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for line in command_lines(page, "make"):
        assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"(?:'\.|gloam)\[(\w+)\]", page.read_text()):
        assert extras in project["optional-dependencies"], extras
    for line in command_lines(page, "pytest"):
        assert (ROOT / line.split()[-1]).exists(), line


def test_every_extra_is_on_the_page_of_the_installation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(code_of(ROOT / "docs/installation.md").inline)
    assert set(project["optional-dependencies"]) <= named


# Files


@EACH_PAGE
def test_files_and_folders_exist(page):
    folders = [ROOT, ROOT / "docs", ROOT / "src/gloam", *(ROOT / "src/gloam").glob("*/")]
    folders.append(ROOT / "src/gloam_lab")
    for name in set(code_of(page).inline) - READERS - MADE:
        is_source = re.fullmatch(r"[\w/-]+(\.(py|md|toml|cff)|/)", name)
        is_path = re.fullmatch(r"[\w./-]+", name) and name.split("/")[0] in TOP and "/" in name
        if is_source or (is_path and name.split("/")[0] != "runs"):
            assert any((folder / name).exists() for folder in folders), name


@EACH_PAGE
def test_functions_of_files_and_private_constants_exist(page):
    text = page.read_text()
    for file, names in re.findall(r"`([\w/]+\.py)`: ((?:`[\w.]+`(?:, | calls )?)+)", text):
        source = (ROOT / "src/gloam" / file).read_text()
        for name in re.findall(r"\w+(?=`)", names):
            assert re.search(rf"\b(def|class) {name}\b", source), (file, name)
    sources = [file.read_text() for file in (ROOT / "src/gloam").rglob("*.py")]
    for name in set(re.findall(r"(?<=`)_[A-Z_]+(?=`)|GLOAM_\w+", text)):
        assert any(re.search(rf"(?<!\w){name}\b", source) for source in sources), name


def test_the_table_of_folders_has_every_file_of_the_package():
    text = (ROOT / "docs/architecture.md").read_text()
    source = ROOT / "src"
    modules = [path.name for path in source.glob("gloam*/*.py") if not path.name.startswith("_")]
    packages = [f"{path.parent.name}/" for path in source.glob("gloam*/*/__init__.py")]
    for name in (*modules, *packages):
        assert f"`{name}`" in text, name


# Settings


@functools.cache
def parameters() -> set[str]:
    """Return the names of all arguments of public functions, classes and methods."""
    names_of_arguments: set[str] = set()
    for package, names in public_names().items():
        for name in names:
            value = getattr(importlib.import_module(package), name)
            members = [member for _, member in inspect.getmembers(value, callable)]
            for function in (value, *(members if isinstance(value, type) else ())):
                with contextlib.suppress(TypeError, ValueError):
                    names_of_arguments |= set(inspect.signature(function).parameters)
    return names_of_arguments


@functools.cache
def words_of_sources() -> set[str]:
    """Return all words of the source."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi")]
    return set(re.findall(r"\w+", " ".join(file.read_text() for file in sources)))


# Pages for users of other libraries have the settings of these, too.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not page.name.startswith("from-")],
    ids=lambda page: page.name,
)
def test_settings_and_names_with_underscores_exist(page, columns):
    words = words_of_sources() | set(re.findall(r"\w+", " ".join(code_of(page).python)))
    for code in code_of(page).inline:
        if match := re.fullmatch(r"(?!xla_)([a-z]\w*)=.*", code):
            assert match[1] in parameters(), code
        elif re.fullmatch(r"(?!xla_)[a-z]\w*_[a-z]+(\(.*\))?", code):
            assert code.partition("(")[0] in words | columns, code


# Columns of metrics


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """The folder of a small run with snapshots and failed evaluations."""
    folder = tmp_path_factory.mktemp("run")
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -1, 1), np.zeros(3), 0.2, batch_size=8)
    calls = itertools.count()

    def evaluate(solution):
        if next(calls) % 5 == 0:
            raise RuntimeError("the simulation diverged")
        return 0.0, solution[:2]

    options: Any = {"seeds": 2, "snapshots": [2], "progress": False}
    gloam.optimize(evaluate, algorithm, 3, per_solution=True, run_dir=folder, **options)
    return folder


@pytest.fixture(scope="module")
def columns(run_dir):
    """Columns of the metrics of a run, with those of all emitters."""
    archive = gloam.GridArchive((10, 10), -1, 1)
    algorithms = dms(), dms(gradients=True), gloam_lab.CMAMEGA(archive, np.zeros(3), 0.2)
    emitters = [algorithm.emitter for algorithm in algorithms]
    logged = set(gloam.RunFolder(run_dir).read_metrics().columns)
    return logged.union(*(emitter.metrics(emitter.init()) for emitter in emitters))


def test_the_documented_columns_are_those_of_runs(columns):
    (table,) = [t for t in tables_of(ROOT / "docs/diagnosing.md") if t[0][0] == "column"]
    named = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table[2:])))
    assert named <= columns
    gradients = re.search(r"The columns (.*?) of the metrics", sentences("docs/gradients.md"))
    assert gradients is not None
    named |= set(re.findall(r"`(\w+)`", gradients[1]))
    assert named <= columns
    _, _, text = inspect.getsource(gloam.Result).partition("metrics:")
    described = set(re.findall(r"``(\w+)``", text.partition("    seeds:")[0]))
    labels = {*dms().emitter.labels, *dms(gradients=True).emitter.labels}
    endings = {name for name in described if name.startswith("_")}
    assert labels <= described
    assert all(any(column.endswith(ending) for column in columns) for ending in endings)
    assert described - {"start_from"} - labels - endings <= columns
    # And every column is described, by either.
    combined = {label + ending for label in labels for ending in endings}
    assert columns <= named | described | combined


# Files of a run folder


def documented_files() -> set[str]:
    """Return the files of a run folder that docs/checkpoints.md lists."""
    (table,) = [t for t in tables_of(ROOT / "docs/checkpoints.md") if t[0][0] == "file"]
    return set(re.findall(r"`([^`]+)`", " ".join(row[0] for row in table[2:])))


def test_the_documented_files_of_a_run_folder_are_all_of_gloams():
    named = documented_files()
    assert ownership.NAME in named
    for name in named - {ownership.NAME}:
        example = name.replace("NNNNNNN", "0000012").replace("SEED", "3").replace("*", "csv")
        folder, _, file = example.rpartition("/")
        pattern = ownership._NAMES[folder]
        assert not file or re.fullmatch(pattern, file), name
    # And all parts of the names that gloam gives are listed.
    text = " ".join(named)
    patterns = (ownership._NAMES[""], *ownership.FOLDERS)
    for word in re.findall(r"[a-z]{3,}", " ".join(patterns).replace("csv|", "")):
        assert word in text or word == "parquet", word


def test_files_are_named_as_runs_name_them(run_dir):
    patterns = {
        re.escape(name).replace("NNNNNNN", r"\d{7}").replace("SEED", r"\d+").replace(r"\*", r"\w+")
        + (".*" if name.endswith("/") else "")
        for name in documented_files()
    }
    written = {str(file.relative_to(run_dir)) for file in run_dir.rglob("*") if file.is_file()}
    assert {"config.json", "metrics.csv", "failures.parquet", "archive-1.npz"} <= written
    for file in written:
        assert any(re.fullmatch(pattern, file) for pattern in patterns), file


# Defaults


def default_of(function: object, name: str) -> object:
    """Return the default of an argument."""
    assert callable(function)
    return inspect.signature(function).parameters[name].default


def dms(**options) -> Any:
    """Return DMS with its defaults."""
    archive = gloam.GridArchive((10, 10), -1, 1)
    return gloam.DMS(archive, np.zeros(3), 0.2, **options)


def test_the_tables_of_settings_have_the_defaults():
    settings = [
        t for t in tables_of(ROOT / "docs/choosing.md") if t[0][:2] == ["setting", "default"]
    ]
    stated = {
        name: row[1]
        for table in settings
        for row in table[2:]
        for name in re.findall(r"\w+", row[0])
    }
    for name, text in stated.items():
        default = default_of(gloam.DMS, name)
        if re.fullmatch(r"[\d.]+|True|False", text):
            assert ast.literal_eval(text) == default, name
        else:
            assert default is None, name
    # Those that are not in the signature.
    plain = dms()
    cma, *_ = plain.emitter.emitters
    assert stated["restart"] == f"`{type(cma.restart).__name__}()`"
    assert stated["first_visit"] == "none"
    assert plain.discount.first_visit is None
    assert stated["floor"] == stated["ceiling"] == "estimated"
    assert stated["network"] == "MLP 128-128"
    assert [weights.shape[0] for weights in plain.discount.network.weights][1:] == [128, 128]
    most = f"{cma_emitters.FULL_UP_TO:,}"
    assert stated["strategy"] == f"`CMAES()` for up to {most} variables, `LMMAES()` above"
    assert isinstance(cma.strategy, gloam.emitters.CMAES)


def test_callbacks_have_the_arguments_of_their_table():
    (table,) = [t for t in tables_of(ROOT / "docs/callbacks.md") if t[0][0] == "callback"]
    named = set()
    for text, *_ in table[2:]:
        call = ast.parse(text.strip("`"), mode="eval").body
        assert isinstance(call, ast.Call)
        named.add(dotted(call.func))
        function = getattr(gloam.callbacks, dotted(call.func))
        parameters = list(inspect.signature(function).parameters)
        given = [dotted(argument) for argument in call.args]
        assert parameters[: len(given)] == given, text
        for keyword in call.keywords:
            assert ast.literal_eval(keyword.value) == default_of(function, keyword.arg or ""), text
    others = {"Callback", "CallbackWarning", "CallbackFailure", "Display", "RunStart", "RunEnd"}
    assert named == public_names()["gloam.callbacks"] - others
    for metric in (*stopping._GROWING, *stopping._COUNTED):
        assert f"`{metric}`" in table[2][1], metric


WORDS = {2: "two", 3: "three", 8: "eight"}


def numbers_of_pages() -> dict[str, list[str]]:
    """Return parts of sentences, by page, whose numbers are computed from the code."""
    algorithm = dms()
    cma, *_ = algorithm.emitter.emitters
    total, discount = algorithm.emitter.num_solutions, algorithm.discount
    climbing: Any = dms(gradients=True).emitter
    num_gradients, slots = climbing.num_gradients, total // climbing.instance_size
    batches = f"{algorithm.emitter.window / total:g} batches"
    exploring, also_exploring, *others = np.round(algorithm.emitter.least, 6)
    assert exploring == also_exploring
    (least,) = set(others)
    moves_targets = aimed_moves._NUM_TARGETS
    paper: Any = gloam.DMS.paper(algorithm.archive, np.zeros(3), 0.2)
    emitters, model = paper.emitter, paper.discount
    thresholds: Any = gloam.CMAMAE(algorithm.archive, np.zeros(3), 0.2).emitter
    rules = " and ".join(
        f"`{type(r).__name__}()`" for r in (thresholds.selection, thresholds.restart)
    )
    in_a_box = gloam.emitters.CmaEmitters(np.zeros(3), bounds=(-1, 1))
    by_seed = get_origin(inspect.get_annotations(gloam.Result)["elites_by_seed"])
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    seconds = default_of(gloam.run, "checkpoint_seconds")
    kept = int(str(default_of(gloam.run, "keep_checkpoints")))
    logged = f"{tables.MAX_FAILURES:,}", f"{failures._BYTES_KEPT >> 20} MB"
    *first, last = tables._failures_schema().names
    times = f"{WORDS[failures._ITERATIONS]} consecutive iterations"
    local, address, address6 = app.LOOPBACK
    port, millions = server._FIRST_PORT, faiss_index.LARGE // 10**6
    return {
        "README.md": [f"# {total} arms of 100 joints"],
        "docs/aiming.md": [
            f"has not fallen by {aimed_emitters._PROGRESS:.0%} for {aimed_emitters._PATIENCE} ",
            f"{aimed_emitters._PATIENCE} iterations without progress",
            f"its solutions share up to {moves_targets}",
            f"{WORDS[aimed_moves._STEPS].title()} steps of conjugate gradients",
            f"The ridge `r`, {aimed_moves._RIDGE:.1%} of",
            f"between 2 and {aimed_moves._MOST}.",
            f"share is {adaptive_mixture._LEAST:.0%} by default",
            f"both kinds of CMA-ES have up to {exploring:.0%}",
            f"that of {targets._CANDIDATES} random empty cells",
            f"counted in {aimed_emitters._COUNTS:,} numbers",
            f"as many as in {batches}",
            f"among at most {targets._MOST_CELLS:,} random ones",
            f"at most {targets._MOST_DISTANCES:,} distances",
            f"the {moves_targets} targets of aimed moves",
            f"compared with {targets._MOST_DISTANCES // moves_targets:,} elites",
        ],
        "docs/architecture.md": [
            f"({cma.num_emitters} slots of {cma.batch_size} solutions",
            f"a `Proposal` of {total} solutions",
            f"at the centers of {discount.num_empty_points} empty cells",
        ],
        "docs/asynchronous.md": [f"batches of at most {emitter._LARGEST_PART} solutions"],
        "docs/checkpoints.md": [
            f"`checkpoint_seconds` ({seconds:g} by default)",
            f"`keep_checkpoints` ({kept} by default)",
            f"the last {WORDS[kept]} are kept",
            f"(at most {' or '.join(logged)})",
        ],
        "docs/choosing.md": [
            f"has {emitters.num_emitters} CMA-ES instances",
            f"instances with `{type(emitters.restart).__name__}()`",
            f"no other emitters, `alpha={model.alpha}`",
            f"`ceiling={model.ceiling:g}`, {model.num_empty_points} empty points",
            f"and a learning rate of {model.learning_rate}.",
            f"{least:.0%}, and for both kinds of CMA-ES up to {exploring:.0%}",
            f"({in_a_box.sigma0} if it is omitted)",
            f"limit them to {arborescences.MOST_MEASURES} measures",
            f"and to 2^{int(np.log2(arborescences.MOST_NUMBERS))} numbers",
        ],
        "docs/diagnosing.md": [
            f"which is {discount.cutoff} of the range of objectives",
            f"always {discount.max_epochs} means",
            f"at least {least:.0%}, and for `cma_es` and `aimed` {exploring:.0%} at first",
            f"does so after {times}",
        ],
        "docs/elites.md": [f"`result.elites_by_seed` is a {by_seed.__name__} of all, by seed"],
        "docs/explorer.md": [
            f"the first free one from {port}",
            f"`ssh -L {port}:localhost:{port} MACHINE`",
            f"of up to {archive_view._MAX_EMBEDDED:,} elites",
            f"Above 10^{int(np.log10(cell_view._MAX_PRODUCTS))} products",
            f"smaller than {-(-html_report.MAX_BYTES // 10**6)} MB",
            f"archives of more than {html_report.MAX_CELLS:,} cells",
            f"a random sample of {html_report._MAX_SAMPLE:,} elites",
            f"answers requests to `{local}`, `{address}` and `[{address6}]`",
        ],
        "docs/from-pyribs.md": [
            f"numbers outside are {default_of(emitter.Bounds, 'outside')}ped, or reflected",
            f"those of `gloam.CMAMAE` {rules}",
        ],
        "docs/latent-space-illumination.md": [
            f"the best of {lsi.NUM_STARTS} random faces",
            f"(number of landscapes, {lsi.NUM_LANDSCAPES:,} by default",
        ],
        "docs/gradients.md": [
            f"an iteration has {total + num_gradients} instead of {total}",
            f"({num_gradients // climbing.instance_size} of {slots} slots)",
            f"all {num_gradients} are computed",
        ],
        "docs/performance.md": [
            f"reports up to {fused_driver.MOST_ROWS} of them",
            f"of {millions} million numbers or more",
        ],
        "docs/recipes.md": [f"at most {compiler._MOST_BYTES >> 30} GiB"],
        "docs/running-at-scale.md": [
            f"{', '.join(first)} and {last} of the first",
            f"{logged[0]} failures (at most {logged[1]})",
            f"After {times} in which all evaluations failed",
        ],
        "docs/stability.md": [f"**Python**: {python.removeprefix('>=')} and newer"],
        "docs/tutorial.md": [
            f"From {millions} million numbers",
            f"all items ({default_of(gloam.gallery.page, 'limit'):,} of a larger dataset)",
        ],
        "docs/variables.md": [f"`1 - {discrete._UNCHANGED} ** (1 / n)`"],
    }


def test_numbers_are_those_of_the_code():
    expected = numbers_of_pages()
    lacking = {
        page: [p for p in parts if p not in sentences(page)] for page, parts in expected.items()
    }
    assert not any(lacking.values()), lacking


def test_no_page_has_another_number_of_the_format():
    pattern = re.compile(r"\bformat(?: number)?,? (?:which )?(?:is )?(\d+)\b")
    for page in PAGES:
        for number in pattern.findall(" ".join(page.read_text().split())):
            assert int(number) == documents.FORMAT, page


def test_the_explorer_has_the_documented_states():
    (table,) = [t for t in tables_of(ROOT / "docs/explorer.md") if t[0][0] == "state"]
    named = {name.split()[0] for row in table[2:] for name in row[0].split(", ")}
    assert named == set(get_args(get_type_hints(summaries.RunState)["state"]))


# Executors


@pytest.mark.parametrize("name", ["Dask", "Ray", "Submitit"])
def test_clusters_are_evaluators_with_an_extra(name):
    assert issubclass(getattr(gloam.evaluators, name), gloam.evaluators.Evaluator)
    extra = f"gloam[{name.lower()}]"
    assert f"'{extra}'" in sentences("docs/running-at-scale.md")
    assert f"| `{name.lower()}` | `gloam.evaluators.{name}`" in sentences("docs/installation.md")


def test_processes_of_executors_are_spawned():
    texts = [page.read_text() for page in PAGES if "ProcessPoolExecutor" in page.read_text()]
    assert texts
    # JAX has threads, with which a forked process may deadlock.
    calls = [
        call for text in texts for call in re.findall(r"ProcessPoolExecutor\((.*?)\) as", text)
    ]
    assert len(calls) >= len(texts)
    assert all('get_context("spawn")' in call for call in calls)
