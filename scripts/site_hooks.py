"""Hooks of MkDocs: pages that are made when the site is built, links that lead out of docs/, and all pages as text.

README, CONTRIBUTING, CHANGELOG and results become pages of the site. A source file that some page links to becomes a
page with its text, so that the link works on GitHub and in a site without network. The API reference is the page of
the service with its files.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from jinja2 import Environment, Template
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from datalens_service.api.http.file_responses import StaticFolder
from datalens_service.api.main import create_app
from datalens_service.api.problems.problem_types import PROBLEM_TYPES
from datalens_service.base.settings import Settings
from datalens_service.report import html

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "api/pages/glossary.md": "glossary.md",
    "benchmarks/results/measurements.md": "measured/measurements.md",
    "benchmarks/results/ablations.md": "measured/ablations.md",
    "benchmarks/results/hostile-files.md": "measured/hostile-files.md",
}
LINK: Final = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
FENCE: Final = re.compile(r"(^ *(`{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
ABOUT: Final = (
    "Private labelled images in, synthetic images or a private classifier out, with a differential privacy guarantee "
    "that a stranger can recompute. Each page below is Markdown; openapi.json describes the REST API."
)
REFERENCE: Final = ROOT / "api" / "pages" / "templates" / "reference.html.j2"
STATIC: Final = ("swagger-ui-bundle.js", "swagger-ui.css", "reference.js", "reference.css", "mark.svg")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expands the placeholders of the menu."""
    placed = set(re.findall(r"[\w-]+\.md", str(config.nav)))
    config.nav = [_expanded(entry, placed) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that docs/ does not hold."""
    for origin, name in PAGES.items():
        files.append(File.generated(config, name, content=rebased((ROOT / origin).read_text(), origin, name)))
    example = json.loads((ROOT / "docs" / "examples" / "privacy-report.json").read_text())
    files.append(File.generated(config, "examples/privacy-report.html", content=html.page(example, None)))
    files.append(File.generated(config, "problems.md", content=describe_problems()))
    for name, content in _reference().items():
        files.append(File.generated(config, name, content=content))
    for path in sorted(_linked_sources(files)):
        shown = File.generated(config, _source_page(path), content=_listing(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(shown)
    return files


def describe_problems() -> str:
    """All problem types as a page of the site."""
    lines = [
        "# Problems",
        "",
        "Every error is `application/problem+json` (RFC 9457). `type` is one of the URIs below, relative to the",
        "service, which answers there with the same text; `code` is its last part; `instance` names the request in",
        "the log. Types are stable: programs may branch on them.",
        "",
    ]
    for problem in PROBLEM_TYPES.values():
        status = f"Status {problem.status}." if problem.status else "On a job only, as its `error`."
        lines += [f"## {problem.slug}", "", f"{problem.title}. {status}", ""]
        lines += [problem.meaning, "", *wrap(f"*What to do:* {problem.remedy}", 120, break_on_hyphens=False), ""]
    return "\n".join(lines)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to source files at their pages."""
    if page.file.generated_by:
        return markdown
    return rebased(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def on_env(env: Environment, *, config: MkDocsConfig, files: Files) -> Environment:
    """Writes the Markdown of each page beside it, and llms.txt, which lists them for programs that read text."""
    pages = {file.src_uri: file.page for file in files.documentation_pages() if file.page is not None}
    texts = {name: page.markdown or "" for name, page in pages.items()}
    for name, text in {**texts, "llms.txt": list_pages(config.nav or [], pages)}.items():
        path = Path(config.site_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return env


def list_pages(nav: list[Any], pages: Mapping[str, Page]) -> str:
    """List the pages of the menu by section, each with its first sentence, as llmstxt.org describes."""
    lines = ["# DataLens Service", "", f"> {ABOUT}", ""]
    for section in nav:
        ((title, entry),) = section.items()
        listed = [name for name in _list_names(entry) if name in pages]
        lines += [f"## {title}", "", *(_describe_page(name, pages[name]) for name in listed), ""] if listed else []
    return "\n".join(lines)


def _list_names(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [name for one in inner for name in _list_names(one)]


def _describe_page(name: str, page: Page) -> str:
    paragraphs = [one for one in (page.markdown or "").split("\n\n") if one[:1].isalpha()]
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    sentence = re.match(r"[^:]*?\.(?= |$)", text)
    return f"- [{page.title}]({name})" + (f": {sentence[0]}" if sentence else "")


def rebased(markdown: str, origin: str, name: str) -> str:
    """Text of `origin`, a path in the repository, with links as the page `name` of the site needs them."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[2]))
        if target.startswith("..") or not (ROOT / target).exists():
            return match[0]  # MkDocs complains
        return match[1] + posixpath.relpath(_in_site(target), posixpath.dirname(name) or ".") + match[3]

    parts = FENCE.split(markdown)
    # Every third part is a fenced block, followed by its fence: code has no links.
    return "".join(LINK.sub(link, part) if number % 3 == 0 else part for number, part in enumerate(parts)
                   if number % 3 != 2)  # fmt: skip


def _in_site(target: str) -> str:
    if target in PAGES:
        return PAGES[target]
    inside = target.removeprefix("docs/")
    if inside != target and (ROOT / target).is_file():
        return inside
    return _source_page(target)


def _source_page(path: str) -> str:
    return f"source/{path}.md"


def _linked_sources(files: Files) -> set[str]:
    origins = [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages() if not file.generated_by)]
    targets = {
        posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[2]))
        for origin in origins
        for match in LINK.finditer(FENCE.sub("", (ROOT / origin).read_text()))
    }
    return {path for path in targets if (ROOT / path).exists() and _in_site(path) == _source_page(path)}


def _listing(path: str) -> str:
    source = ROOT / path
    if source.is_dir():
        names = sorted(one.name for one in source.iterdir() if not one.name.startswith(("__pycache__", ".")))
        return f"# {path}\n\n" + "".join(f"- {_entry(path, name)}\n" for name in names)
    language = source.suffix.removeprefix(".") or "text"
    return f"# {path}\n\n`````{language}\n{source.read_text()}\n`````\n"


def _entry(folder: str, name: str) -> str:
    if not folder.startswith("docs/"):
        return f"`{name}`"
    return f"[{name}]({posixpath.relpath(_in_site(f'{folder}/{name}'), posixpath.dirname(_source_page(folder)))})"


def _reference() -> dict[str, str | bytes]:
    """Files of the API reference by their place in the site."""
    described = create_app(Settings(data_dir=Path("never-opened"))).openapi()
    # Where `datalens serve` answers: a key that a reader tries out does not go to the host of the site.
    described["servers"] = [{"url": "http://127.0.0.1:8000"}]
    page = Template(REFERENCE.read_text(), autoescape=True).render(url=lambda path: f".{path}", theme=None)
    folder = StaticFolder()
    static = {f"static/{name}": Path(folder.lookup_path(name)[0]).read_bytes() for name in STATIC}
    return {"reference.html": page, "openapi.json": json.dumps(described), **static}


def _expanded(entry: Any, placed: set[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(value, placed) for title, value in entry.items()}
    if isinstance(entry, list):
        expanded = [_expanded(one, placed) for one in entry]
        # A folder without pages has no place in the menu.
        return [one for one in expanded if not (isinstance(one, dict) and [] in one.values())]
    if entry == "*":
        return [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in placed]
    if entry.endswith("/*"):
        folder = ROOT / "docs" / entry.removesuffix("/*")
        return [f"{folder.name}/{path.name}" for path in sorted(folder.glob("*.md"))]
    return entry
