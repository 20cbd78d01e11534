"""Imports point one way. The table is the rule; the tests hold the source to it."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gloam
import gloam_lab

SOURCE = Path(gloam.__file__).parent
LABORATORY = Path(gloam_lab.__file__).parent

_BASE = {"records", "spaces", "evaluation", "errors", "_tools"}
_PIECES = {"emitters", "archives", "discounts"}
_CORE = _BASE | _PIECES | {"algorithms", "diagnostics", "step", "_version"}

# What each room (a folder or a file directly in `gloam`) may import of gloam besides itself. A
# name with a dot allows that module alone. The pieces do not know one another: what one needs of
# another, `step` hands over.
ALLOWED = {
    "_version": set(),
    "_tools": set(),
    "errors": {"_tools"},
    "records": {"_tools"},
    "spaces": {"_tools"},
    "evaluation": {"_tools", "spaces"},
    "emitters": _BASE,
    "archives": _BASE,
    "discounts": _BASE,
    "algorithms": _BASE | _PIECES,
    "diagnostics": _BASE | _PIECES | {"algorithms"},
    "step": _BASE | _PIECES | {"algorithms", "diagnostics"},
    "datasets": _BASE | {"archives"},
    "domains": _BASE | {"archives", "datasets"},
    # Files are below the searches: whatever a file holds, it cannot make a search run.
    "formats": _CORE | {"domains", "datasets"},
    # Evaluators know nothing of searches; they also run in the processes of workers.
    "evaluators": _BASE | {"archives"},
    # Callbacks know rows of metrics and elites; the loop of a run calls them.
    "callbacks": _BASE | {"archives"},
    "searches": _CORE | {"formats", "evaluators"},
    "runs": _CORE
    | {"datasets", "formats", "evaluators", "callbacks", "searches", "plots", "gallery"},
    # Figures come from run folders: what reads them is allowed, what runs searches is not.
    "plots": _CORE | {"datasets", "formats"},
    "gallery": _CORE | {"datasets", "formats", "plots"},
    # Elites and models of other libraries; it runs no search.
    "interop": _CORE,
    "explorer": _CORE | {"domains", "datasets", "formats", "plots", "gallery", "runs.comparison"},
    # Its modules are imported for every `--help`, and gloam's on use: as `gloam.NAME`, or in a
    # function.
    "cli": _CORE
    | {"__init__", "domains", "datasets", "formats", "runs", "plots", "gallery"}
    | {"explorer", "evaluators", "callbacks"},
    "__init__": set(),
    "__main__": {"cli"},
}


def files():
    return sorted(SOURCE.rglob("*.py"))


def dotted(file: Path) -> str:
    """``archives.store`` for ``archives/store.py``, ``archives`` for its ``__init__``."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    if len(parts) > 1 and parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def source(module: str) -> Path | None:
    """The file of a module, a package's being its ``__init__``."""
    place = SOURCE.joinpath(*module.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def home(module: str, name: str) -> str:
    """The module that ``from gloam.{module} import {name}`` leads to.

    A name that a package passes on counts as that of the module it comes from, so that the public
    surface of a room does not hide which of its files is used.
    """
    if source(f"{module}.{name}".removeprefix("__init__.")):
        return f"{module}.{name}".removeprefix("__init__.")
    file = source(module)
    if file is not None and file.name == "__init__.py":
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            passed_on = {alias.asname or alias.name for alias in node.names}
            if node.module.startswith("gloam.") and name in passed_on:
                return node.module.removeprefix("gloam.")
    return module


def imported(text: str, module: str, is_package: bool) -> set[str]:
    """Modules of gloam that a source text imports, anywhere in it, without the leading ``gloam.``.

    ``import gloam`` itself counts as ``__init__``.
    """
    found = set()
    inside = ["gloam", *([] if module == "__init__" else module.split("."))]
    package = inside if is_package else inside[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            ours = [name for name in names if name.split(".")[0] == "gloam"]
            found |= {name.removeprefix("gloam").lstrip(".") or "__init__" for name in ours}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = [*base, *(node.module.split(".") if node.module else [])]
            if start[0] == "gloam":
                room = ".".join(start[1:]) or "__init__"
                found |= {home(room, alias.name) for alias in node.names}
    return found


def forbidden(room: str, imports: set[str]) -> set[str]:
    allowed = ALLOWED[room] | {room}
    return {
        name
        for name in imports
        if not any(name == other or name.startswith(other + ".") for other in allowed)
    }


def test_every_room_is_in_the_table():
    rooms = {dotted(file).split(".")[0] for file in files()}
    assert rooms >= {"step", "records", "_tools"} | _PIECES
    assert rooms <= set(ALLOWED), f"say what {rooms - set(ALLOWED)} may import, in ALLOWED"


@pytest.mark.parametrize("file", files(), ids=dotted)
def test_imports_point_one_way(file):
    module = dotted(file)
    imports = imported(file.read_text(), module, file.name == "__init__.py")
    wrong = forbidden(module.split(".")[0], imports)
    assert not wrong, f"gloam.{module} may not import {sorted(wrong)}: see ALLOWED"


def test_the_table_itself_has_no_circle():
    left = {room: {name.split(".")[0] for name in ALLOWED[room]} for room in ALLOWED}
    while left:
        free = {room for room, needs in left.items() if not needs & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {room: needs for room, needs in left.items() if room not in free}


@pytest.mark.parametrize("file", files(), ids=dotted)
def test_the_library_does_not_know_the_laboratory(file):
    names = {
        name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
    }
    assert not {name for name in names if name.split(".")[0] == LABORATORY.name}


@pytest.mark.parametrize(
    ("module", "text", "wrong"),
    [
        ("emitters.cma_emitters", "from gloam.archives.store import add", {"archives.store"}),
        ("emitters.cma_emitters", "from gloam.archives import Faiss", {"archives.faiss_index"}),
        (
            "emitters.cma_emitters",
            "import gloam.discounts.discount_model as model",
            {"discounts.discount_model"},
        ),
        ("emitters.cma_emitters", "from gloam import archives", {"archives"}),
        ("emitters.cma_emitters", "from ..archives.store import add", {"archives.store"}),
        ("emitters.cma_emitters", "from .. import archives", {"archives"}),
        ("emitters.cma_emitters", "def f():\n    from gloam.step import ask", {"step"}),
        ("emitters.cma_emitters", "import gloam", {"__init__"}),
        ("emitters.cma_emitters", "from gloam import nothing_of_that_name", {"__init__"}),
        ("emitters.cma_emitters", "from gloam import *", {"__init__"}),
        ("records", "from gloam.emitters.emitter import Emitter", {"emitters.emitter"}),
        ("_tools.checks", "from gloam import records", {"records"}),
        ("step", "from gloam.searches import Search", {"searches.search"}),
        ("algorithms.dms", "import gloam.runs.fused_driver", {"runs.fused_driver"}),
        ("domains.arm", "import gloam.plots", {"plots"}),
        ("plots.metric_curves", "import gloam.runs", {"runs"}),
        ("plots.metric_curves", "from gloam.searches import Search", {"searches.search"}),
        ("plots.metric_curves", "from gloam.runs import fused_driver", {"runs.fused_driver"}),
        ("plots.metric_curves", "from gloam.formats import RunFolder", set()),
        ("formats.run_folder", "from gloam.runs import run", {"runs.run"}),
        (
            "emitters.cma_emitters",
            "from gloam.emitters import cma_es\nfrom . import emitter",
            set(),
        ),
        (
            "emitters.cma_emitters",
            "from gloam import records\nfrom gloam._tools import checks\nimport jax",
            set(),
        ),
        ("emitters.cma_emitters", "import gloamy\nfrom gloamy.archives import add", set()),
    ],
)
def test_what_the_rule_forbids_is_found(module, text, wrong):
    room = module.split(".")[0]
    assert forbidden(room, imported(text, module, is_package=False)) == wrong


def test_modules_are_imported_on_use():
    code = """
import sys, gloam
assert "numpy" not in sys.modules, "gloam itself imports nothing"
gloam.DMS, gloam.GridArchive, gloam.Search, gloam.run
slow = {"matplotlib", "pandas", "scipy.stats", "scipy.signal", "tokenizers", "torch", "faiss"}
assert not slow & set(sys.modules), "imported for a search"
assert "gloam_lab" not in sys.modules
import gloam_lab
gloam_lab.preset_algorithm
assert not slow & set(sys.modules), "imported for the algorithms of the command line"
assert callable(gloam.plots.curves)
assert "matplotlib" in sys.modules
assert gloam.gallery.gallery.__name__ == "gallery"
assert gloam_lab.Study.__name__ == "Study"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_imports_neither_jax_nor_pandas_nor_matplotlib():
    commands = ["", "run dms lp", "lsi run", "paper", "bench", "fill", "demo"]
    code = f"""
import sys
from gloam.cli import main
for command in {commands}:
    try:
        main([*command.split(), "--help"])
    except SystemExit as stopped:
        assert not stopped.code
    imported = {{"jax", "pandas", "matplotlib", "scipy", "equinox"}} & set(sys.modules)
    assert not imported, (command, imported)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage:") == len(commands)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No gloam attribute plotz"):
        gloam.plotz  # noqa: B018


def public(package) -> set[str]:
    """Names of a package that are neither private nor modules."""
    names = {name for name in dir(package) if not name.startswith("_")}
    return {name for name in names if not isinstance(getattr(package, name), ModuleType)}


def test_dir_shows_the_public_names_and_help_lists_them_all():
    names = {name for name in dir(gloam) if not name.startswith("_")}
    assert {"DMS", "run", "archives", "plots", "step", "errors"} <= names
    assert not names & {"importlib", "ModuleType", "TYPE_CHECKING", "checks", "_tools", "cli"}
    assert public(gloam) - {"ModuleType", "TYPE_CHECKING"} <= names
    missing = names - set(re.findall(r"\w+", gloam.__doc__ or ""))
    assert not missing, f"the docstring of gloam does not list {missing}"


def test_the_step_size_has_one_name():
    for package in (gloam, gloam.emitters):
        for name in public(package):
            constructor = getattr(getattr(package, name), "__init__", None)
            if inspect.isfunction(constructor):
                assert "sigma" not in inspect.signature(constructor).parameters, name


def test_archives_and_discounts_pass_on_what_users_need_and_no_more():
    archives = {"Archive", "GridArchive", "CVTArchive"}
    archives |= {"Elites", "Elite", "EliteBatch", "EliteStatistics"}
    assert public(gloam.archives) == archives | {"Faiss", "FaissIndex", "kmeans_centroids"}
    discounts = {"Discount", "DiscountModel", "NoDiscount", "Thresholds"}
    discounts |= {"untrained"}
    networks = {"CNN", "MLP", "Frozen", "from_torch"}
    assert public(gloam.discounts) == discounts | networks
