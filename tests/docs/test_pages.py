"""Every link and anchor of a Markdown file leads somewhere, and every name that a page gives to something exists."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

from datalens_service.base.settings import Settings, secret_settings
from repository import ROOT, list_files

FILES = list_files()
PAGES = [ROOT / name for name in FILES if name.endswith(".md")]
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
REQUIREMENT = re.compile(r"\bR\d{1,2}\b")
# Read by the command line and the tests.
CLIENT_VARIABLES = {"URL", "API_KEY", "TEST_DATA", "REQUIRE_SERVICES"}

# Of these the generated copy is checked.
TEMPLATES = set((ROOT / "benchmarks").glob("*.md"))


def prose(page: Path) -> str:
    """Without fenced code, in which brackets are no links."""
    return FENCE.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub derives them from headings."""
    seen: dict[str, int] = {}
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text()))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return names


def broken_links(page: Path) -> list[str]:
    """Links and anchors of a page that lead nowhere."""
    broken = []
    for target, anchor in LINK.findall(prose(page)):
        if re.match(r"\w+:", target):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path.resolve())):
            broken.append(f"{target}#{anchor}")
    return broken


def test_every_link_and_anchor_leads_somewhere():
    found = {str(page.relative_to(ROOT)): broken_links(page) for page in PAGES if page not in TEMPLATES}
    assert {page: broken for page, broken in found.items() if broken} == {}


def test_every_requirement_that_a_test_names_is_on_its_page():
    stated = set(REQUIREMENT.findall((ROOT / "docs" / "requirements.md").read_text()))
    named = {
        name
        for path in (ROOT / "tests" / "privacy_gate").glob("*.py")
        for name in REQUIREMENT.findall(path.read_text())
    }
    assert named
    assert named <= stated, named - stated


def test_no_file_names_a_document_that_is_not_in_the_repository():
    """`page.md` in code or prose is a page of docs/, or a path from the root or beside the file that names it."""
    names = [name for name in FILES if name.endswith((".py", ".md", ".toml", ".yml")) or name.startswith("scripts/")]
    known = {page.name for page in PAGES} | {
        "datasheet.md",
        "overview.md",
        "contributing.md",
        "changelog.md",
        "problems.md",
    }
    missing = {}
    for name in names:
        if name.startswith(("tests/docs/", "tests/extensions/", "tests/browser/test_site")):
            continue
        text = (ROOT / name).read_text(errors="ignore")
        missing[name] = {one for one in re.findall(r"\b([\w-]+\.md)\b(?!\.)", text) if one not in known}
    assert {name: lost for name, lost in missing.items() if lost} == {}


def test_no_file_names_a_module_that_is_not_in_the_repository():
    """Decisions and the changelog tell of modules as they were; `x.py` is a new one's."""
    ends = {"/".join(name.split("/")[place:]) for name in FILES for place in range(name.count("/") + 1)}
    missing = {}
    for name in FILES:
        told = name.startswith(("docs/decisions/", "CHANGELOG", "tests/extensions/", "tests/docs/"))
        if told or not name.endswith((".py", ".md", ".j2")):
            continue
        named = re.findall(r"`([\w./-]+\.py)`", (ROOT / name).read_text())
        missing[name] = {one for one in named if one not in ends and not re.search(r"(^|/)x(_pages)?\.py$", one)}
    assert {name: lost for name, lost in missing.items() if lost} == {}


def test_architecture_states_the_layers_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    stated = re.search(r"```text\n(cli .*?)\n```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    assert stated is not None
    assert stated[1].splitlines() == [layer.replace("datalens_service.", "") for layer in layers]


def test_every_field_of_a_report_is_explained():
    report = json.loads((ROOT / "docs" / "examples" / "privacy-report.json").read_text())
    fields = [entry["field"] for entry in report["index"]]
    stated = re.findall(r"^- \*\*(F\d+)\*\* \w", (ROOT / "docs" / "report.md").read_text(), re.MULTILINE)
    assert stated == fields


def test_environment_variables_that_a_page_names_are_read():
    """Pages outlive settings that are renamed."""
    files = {f"{name.upper()}_FILE" for name in secret_settings()}
    settings = {name.upper() for name in Settings.model_fields} | files | CLIENT_VARIABLES
    named = {
        str(page.relative_to(ROOT)): set(re.findall(r"\bDATALENS_([A-Z_]*[A-Z])", page.read_text())) - settings
        for page in PAGES
    }
    assert {page: unknown for page, unknown in named.items() if unknown} == {}
