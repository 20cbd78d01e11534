"""Pages of the API reference: one per public package of `gloam` and `gloam_lab`.

Names are read from the source, without importing it: a package re-exports a name by
``from gloam.archives.elites import Elites as Elites``, or in its stub by
``from .elites import Elites as Elites``. Each object is documented once, on the page
of its shortest name.
"""

import ast
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src"
# Public modules that `gloam` does not re-export.
FURTHER = (
    "evaluators",
    "explorer",
    "formats",
    "interop.gymnasium",
    "interop.ribs",
    "records",
    "step",
)
# Modules of records, whose fields are shown without a description, too.
RECORDS = ("gloam.records", "gloam.step")


class Package(NamedTuple):
    """A public package: its summary, and its names with the modules that define them."""

    name: str
    sentence: str
    homes: dict[str, str]


def public_packages() -> list[Package]:
    """Return `gloam`, `gloam_lab`, and the packages and modules that these re-export."""
    library, laboratory = _public_modules("gloam"), _public_modules("gloam_lab")
    further = {f"gloam.{name}" for name in FURTHER}
    names = ["gloam", *sorted({*library, *further}), "gloam_lab", *laboratory]
    return [_package(name) for name in names]


def _public_modules(package: str) -> list[str]:
    """Return the modules that a package re-exports."""
    names = [name for name, home in _re_exports(_file(package)).items() if home == package]
    return [f"{package}.{name}" for name in names if _file(f"{package}.{name}").is_file()]


def reference_pages() -> dict[str, str]:
    """Return the pages as Markdown, by their paths in the site."""
    packages = public_packages()
    described: dict[tuple[str, str], str] = {}
    contents = [
        "# API reference\n",
        "Every public name, by package. Names that are not on these pages are private and may "
        "change in any version ([what is stable](../stability.md)).\n",
    ]
    pages = {}
    for package in packages:
        file = package.name.removeprefix("gloam.") + ".md"
        here, elsewhere = [], []
        for name, home in sorted(package.homes.items(), key=lambda item: item[0].lower()):
            path = described.setdefault((home, name), f"{package.name}.{name}")
            (here if path == f"{package.name}.{name}" else elsewhere).append((name, path))
        lines = [f"# {package.name}\n", f"{package.sentence}\n"]
        if elsewhere:
            links = ", ".join(f"[{name}][{path}]" for name, path in elsewhere)
            lines.append(f"Documented on the page of `gloam`: {links}.\n")
        options = "    options: {show_if_no_docstring: true}\n" if package.name in RECORDS else ""
        lines += [f"::: {path}\n{options}" for _, path in here]
        pages[f"reference/{file}"] = "\n".join(lines)
        links = ", ".join(f"[{name}][{path}]" for name, path in here)
        contents.append(f"## [{package.name}]({file})\n\n{package.sentence}\n\n{links}\n")
    return {"reference/index.md": "\n".join(contents), **pages}


def _package(name: str) -> Package:
    file = _file(name)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    sentence = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
    exports = _re_exports(file)
    modules = {module.rpartition(".")[2] for module in _public_modules(name)}
    homes = {item: _home(item, home) for item, home in exports.items() if item not in modules}
    kinds = (ast.ClassDef, ast.FunctionDef)
    defined_here = [node.name for node in tree.body if isinstance(node, kinds)]
    homes |= {item: name for item in defined_here if not item.startswith("_")}
    homes.pop("__version__", None)
    return Package(name, sentence, homes)


def _re_exports(file: Path) -> dict[str, str]:
    """Return the names that a file re-exports, with the modules they come from."""
    stub = file.with_suffix(".pyi")
    file = stub if stub.is_file() else file
    package = ".".join(file.parent.relative_to(SOURCE).parts)
    imports = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {
        alias.name: ".".join([package] * node.level + [node.module] * bool(node.module))
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }


def _home(name: str, module: str) -> str:
    """Return the module that defines a name, following re-exports."""
    further = _re_exports(_file(module)).get(name)
    return module if further is None else _home(name, further)


def _file(name: str) -> Path:
    """Return the file of a module, or the ``__init__`` of a package."""
    path = SOURCE.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
