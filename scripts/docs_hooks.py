"""mkdocs hooks: add the pages outside docs/ and the API reference, and rewrite links to them."""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))
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
_SOURCES = {site: source for source, site in OUTSIDE.items()}


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
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages.

    A link to a file that is not a page of the site, such as a module, becomes plain text.
    """
    site = page.file.src_uri
    if site.startswith("reference/"):
        return markdown
    source = _SOURCES.get(site, f"docs/{site}")

    def linked(match: re.Match) -> str:
        text, place, anchor = match.groups(default="")
        if not place or ":" in place:
            return match.group(0)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), place))
        if target in OUTSIDE:
            target = OUTSIDE[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif (ROOT / target).exists():
            return text
        else:
            return match.group(0)
        return f"[{text}]({posixpath.relpath(target, posixpath.dirname(site) or '.')}{anchor})"

    return re.sub(r"\[([^\[\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)", linked, markdown)
