"""What a wheel has: one package, a version of its own, and a description whose links lead somewhere."""

import ast
import os
import re
import shutil
import subprocess
import sys
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


def test_an_image_is_built_of_files_that_make_the_same_wheel(packed: dict[str, bytes], tmp_path: Path) -> None:
    _, stage = (ROOT / "Dockerfile").read_text().split(" AS wheel\n")
    copied = re.findall(r"^COPY ([\w./ -]+?) \S+$", stage.split("\nFROM ")[0], flags=re.MULTILINE)
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    names = {"pyproject.toml", *(name for names in copied for name in names.split())}
    assert {"api", "CHANGELOG.md"} <= names <= set(sent)
    for name in list_files():
        if name in names or name.split("/")[0] in names:
            (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "source" / name)
    for link in (path for path in (ROOT / "datalens_service").iterdir() if path.is_symlink()):
        (tmp_path / "source" / "datalens_service" / link.name).symlink_to(link.readlink())
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    environment = os.environ | {"BUILD_VERSION": "7.0.0.dev1-gabc"}
    subprocess.run(build, cwd=tmp_path / "source", env=environment, check=True, capture_output=True)
    with zipfile.ZipFile(tmp_path / "datalens_service-7.0.0.dev1+gabc-py3-none-any.whl") as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert modules == {name: content for name, content in packed.items() if ".dist-info/" not in name}


def test_the_description_has_no_link_that_leads_nowhere(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    shown = MarkdownIt("commonmark").enable("table").render(text)
    assert "<h2>The guarantee</h2>" in shown
    assert [link for link in LINKS.findall(shown) if not link.startswith("https://")] == []
