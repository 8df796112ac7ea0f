"""What a wheel has: one package, a version of its own, and a description whose links lead somewhere."""

import ast
import re
import subprocess
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from repository import ROOT, list_files

LINKS = re.compile(r'(?:href|src)="([^"]*)"')


@pytest.fixture(scope="module")
def packed(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(packed: dict[str, bytes]) -> Message:
    [content] = [content for name, content in packed.items() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(content)


def test_one_name_stands_at_the_top(packed: dict[str, bytes]) -> None:
    top = {name.partition("/")[0] for name in packed}
    assert {name for name in top if not name.endswith(".dist-info")} == {"datalens_service"}


@pytest.mark.parametrize("room", ["api", "migrations", "workers"])
def test_the_rooms_beside_the_library_are_packed_whole(packed: dict[str, bytes], room: str) -> None:
    files = {name: (ROOT / name).read_bytes() for name in list_files() if name.startswith(f"{room}/")}
    assert len(files) > 10
    assert {name: packed[f"datalens_service/{name}"] for name in files} == files


def test_no_module_imports_another_name_of_the_repository(packed: dict[str, bytes]) -> None:
    ours = {path.stem for path in ROOT.iterdir()} - {"datalens_service"}
    imported = {name: _imports(content) for name, content in packed.items() if name.endswith(".py")}
    assert "datalens_service" in imported["datalens_service/api/main.py"]
    assert {name: found & ours for name, found in imported.items() if found & ours} == {}


def _imports(content: bytes) -> set[str]:
    nodes = list(ast.walk(ast.parse(content)))
    names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_a_source_distribution_makes_the_same_wheel(
    packed: dict[str, bytes], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uv = [ROOT / ".venv" / "bin" / "uv", "build", "--quiet", "--offline", "--no-build-isolation"]
    subprocess.run([*uv, "--out-dir", tmp_path, ROOT], check=True)
    [built] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == packed


def test_the_description_has_no_link_that_leads_nowhere(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    shown = MarkdownIt("commonmark").enable("table").render(text)
    assert "<h2>The guarantee</h2>" in shown
    assert [link for link in LINKS.findall(shown) if not link.startswith("https://")] == []
