"""The pages of the API reference: one for each public package, with every public name.

The names are read from the source, without importing gloam: a package passes a name on by
``from gloam.archives.elites import Elites as Elites``. Each object is described once, on the page
of the shortest name that it has.
"""

import ast
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "gloam"
# Public modules that `gloam` does not pass on: bridges, and what those who write own parts need.
FURTHER = ("evaluators", "interop.gymnasium", "interop.ribs", "records", "step")
# What the docstrings of a package cannot say by themselves.
NOTES = {
    "gloam": "`DMS`, `CMAMAE`, `DDS`, `MAPElites` and `MAPElitesLine` also take the keyword "
    "arguments of their parts: [CmaEmitters][gloam.emitters.CmaEmitters] or "
    "[Variation][gloam.emitters.Variation], and "
    "[DiscountModel][gloam.discounts.DiscountModel], [Thresholds][gloam.discounts.Thresholds] or "
    "[KernelDensity][gloam.discounts.KernelDensity]. `help(gloam.DMS)` lists them.\n",
}


class Package(NamedTuple):
    """What a public package says of itself, and its names with the modules they come from."""

    name: str
    sentence: str
    homes: dict[str, str]


def public_packages() -> list[Package]:
    """`gloam` and the packages and modules that it passes on."""
    inner = [name for name, home in _passed_on(_file("gloam")).items() if home == "gloam"]
    inner = [name for name in inner if _file(f"gloam.{name}").is_file()]
    names = ["gloam", *(f"gloam.{name}" for name in sorted({*inner, *FURTHER}))]
    return [_package(name) for name in names]


def reference_pages() -> dict[str, str]:
    """Markdown of the pages, by their paths in the site."""
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
        own, elsewhere = [], []
        for name, home in sorted(package.homes.items(), key=lambda item: item[0].lower()):
            place = described.setdefault((home, name), f"{package.name}.{name}")
            (own if place == f"{package.name}.{name}" else elsewhere).append((name, place))
        lines = [f"# {package.name}\n", f"{package.sentence}\n"]
        if package.name in NOTES:
            lines.append(NOTES[package.name])
        if elsewhere:
            links = ", ".join(f"[{name}][{place}]" for name, place in elsewhere)
            lines.append(f"Described on the page of `gloam`: {links}.\n")
        lines += [f"::: {place}\n" for _, place in own]
        pages[f"reference/{file}"] = "\n".join(lines)
        links = ", ".join(f"[{name}][{place}]" for name, place in own)
        contents.append(f"## [{package.name}]({file})\n\n{package.sentence}\n\n{links}\n")
    return {"reference/index.md": "\n".join(contents), **pages}


def _package(name: str) -> Package:
    file = _file(name)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    sentence = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
    homes = {own: _home(own, home) for own, home in _passed_on(file).items() if home != "gloam"}
    kinds = (ast.ClassDef, ast.FunctionDef)
    made_here = [node.name for node in tree.body if isinstance(node, kinds)]
    homes |= {own: name for own in made_here if not own.startswith("_")}
    homes.pop("__version__", None)
    return Package(name, sentence, homes)


def _passed_on(file: Path) -> dict[str, str]:
    """Names that a file imports as themselves, with the modules they come from."""
    imports = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {
        alias.name: node.module or ""
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }


def _home(name: str, module: str) -> str:
    """The module that makes a name, which packages may pass on several times."""
    further = _passed_on(_file(module)).get(name)
    return module if further is None else _home(name, further)


def _file(name: str) -> Path:
    """The file of a module; of a package, its ``__init__``."""
    place = SOURCE.joinpath(*name.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
