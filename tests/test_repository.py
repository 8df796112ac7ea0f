"""The tests need nothing around the repository: no history, no folder beside it, no machine that is named or idle."""

import ast
import re
import subprocess
from pathlib import Path

from other_programs import find_program
from repository import ROOT, list_files

FILES = list_files()
TEXTS = [name for name in FILES if not re.search(rb"\0", (ROOT / name).read_bytes())]
LEAVES = re.compile(r"\.\./shared|/work/|/root/|ROOT\.parent\b")
UPWARDS = re.compile(r"Path\(__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]")
REQUEST = re.compile(r"httpx2?\.(get|post|put|patch|delete|head|options|request|stream|Client|AsyncClient)$")
MADE_UP = {"tests/test_repository.py"}


def test_an_unpacked_archive_has_the_files_that_a_checkout_has(tmp_path: Path) -> None:
    git = find_program("git")
    for name in (".gitignore", "a.py", "docs/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("build/\n*.pyc\n")
    for name in ("build/c.txt", "docs/d.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    unpacked = list_files(tmp_path)
    subprocess.run([git, "-C", str(tmp_path), "init", "--quiet"], check=True)
    assert unpacked == list_files(tmp_path) == [".gitignore", "a.py", "docs/b.txt"]


def test_no_file_is_a_link_to_elsewhere() -> None:
    links = [ROOT / name for name in FILES if (ROOT / name).is_symlink()]
    assert [link for link in links if not link.resolve().is_relative_to(ROOT)] == []


def test_no_file_names_a_folder_beside_the_repository() -> None:
    named = {name: LEAVES.findall((ROOT / name).read_text(errors="replace")) for name in TEXTS if name not in MADE_UP}
    assert {name: found for name, found in named.items() if found} == {}


def test_no_program_climbs_out_of_the_repository() -> None:
    climbs = {
        name: [level for level in UPWARDS.findall((ROOT / name).read_text()) if int(level) >= len(Path(name).parts)]
        for name in TEXTS
        if name.endswith(".py")
    }
    assert {name: levels for name, levels in climbs.items() if levels} == {}


def test_no_test_gives_up_after_the_seconds_of_a_library() -> None:
    """By default httpx2 waits for five seconds, and a service on a busy machine may take longer."""
    hasty = [
        f"{name}:{node.lineno}"
        for name in FILES
        if name.startswith("tests/") and name.endswith(".py") and b"httpx" in (ROOT / name).read_bytes()
        for node in ast.walk(ast.parse((ROOT / name).read_bytes()))
        if isinstance(node, ast.Call) and REQUEST.match(ast.unparse(node.func))
        if "timeout" not in {keyword.arg for keyword in node.keywords}
    ]
    assert hasty == []
