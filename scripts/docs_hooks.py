"""mkdocs hooks: add the pages outside docs/ and the API reference, and rewrite links to them."""

import ast
import json
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "src")]
from command_line_page import command_line_page  # noqa: E402
from reference_pages import reference_pages  # noqa: E402

# Pages outside docs/, with their paths in the site.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "SECURITY.md": "project/security.md",
    **{
        place.relative_to(ROOT).as_posix(): f"examples/{place.parent.name}.md"
        for place in ROOT.glob("examples/*/README.md")
    },
}
# Programs and notebooks, which become pages.
EXAMPLES = {
    place.relative_to(ROOT).as_posix(): f"examples/{place.stem}.md"
    for place in [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")]
}
_SOURCES = {site: source for source, site in OUTSIDE.items()}
# Addresses that a browser loads with a page.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*rel=["']?(?:stylesheet|icon|preload|preconnect))[^>]*"""
    r"""\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace ``reference/`` in the navigation with the pages of the API reference."""
    pages = list(reference_pages())
    for entry in config.nav or []:
        for title, value in entry.items():
            if value == "reference/":
                entry[title] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs/."""
    for source, site in OUTSIDE.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / source)))
    for site, content in reference_pages().items():
        files.append(File.generated(config, site, content=content))
    for source, site in EXAMPLES.items():
        files.append(File.generated(config, site, content=example_page(ROOT / source)))
    page = File.generated(config, "command-line.md", content=command_line_page())
    files.append(page)
    return files


def example_page(place: Path) -> str:
    """Return a program, or the cells of a notebook, as Markdown."""
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".py":
        title, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
        code = text.split('"""', 2)[2].strip()
        return f"# {place.name}\n\n{title}\n{rest}\n\n```python\n{code}\n```\n"
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Check that the pages load nothing from other hosts."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := loaded_from_elsewhere(page.read_text(encoding="utf-8")):
            raise PluginError(
                f"{page.name}: expected scripts, styles and images of the site itself, got "
                f"{found[0]}. Add the file to docs/, or configure it away in mkdocs.yml."
            )


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return the addresses on other hosts that a browser loads with a page."""
    return [script or link for script, link in _LOADED.findall(html)]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages.

    A link to a file that is not a page of the site, such as a module, becomes plain text.
    """
    site = page.file.src_uri
    if site.startswith("reference/") or site == "command-line.md" or site in EXAMPLES.values():
        return markdown
    source = _SOURCES.get(site, f"docs/{site}")

    def linked(match: re.Match) -> str:
        text, place, anchor = match.groups(default="")
        if not place or ":" in place:
            return match.group(0)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), place))
        pages = OUTSIDE | EXAMPLES
        if target in pages:
            target = pages[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif (ROOT / target).exists():
            return text
        else:
            return match.group(0)
        return f"[{text}]({posixpath.relpath(target, posixpath.dirname(site) or '.')}{anchor})"

    return re.sub(r"\[([^\[\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)", linked, markdown)
