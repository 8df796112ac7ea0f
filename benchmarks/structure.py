"""Files, imports and words of each room, at two commits: `python -m benchmarks.structure BEFORE AFTER --json`."""

from __future__ import annotations

import argparse
import ast
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, provenance

GIT = shutil.which("git") or "git"
PACKAGES = ("datalens_service", "api", "workers")
_WORDS = """
Place HERE Workplace Workbench Bench Ranks HeldTeachers SomeImages SharedVotes Voters LeadingVoters SumsLoop
Labeller Descent Intake Patience LiveJob LedgerLog Portion found wanted own there kept told opened hook_sender
intakes mirror patience replies calls upkeep redelivery attend measuring reporting figures shares stages catalogue
findings STOCK everybodys
"""
HOUSE_WORDS = frozenset(_WORDS.split())
"""Of names in the code; what replaced them is in docs/architecture.md."""

Imports = dict[str, set[str]]


def measure(commit: str) -> dict[str, Any]:
    """Rooms of a commit: files, imports between files of the same room, circles, and words of our own."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(commit, Path(folder))
        modules = {_module(path.relative_to(folder)): path for path in _sources(Path(folder))}
        imports = {module: _imports(module, path, modules.keys()) for module, path in modules.items()}
        rooms = {room: _room(room, imports) for room in sorted({_room_of(module) for module in modules})}
        words = Counter(word for path in modules.values() for word in _house_words(path))
    return {"commit": commit, "rooms": rooms, "house_words": dict(words.most_common()), "total": _total(rooms, words)}


def _unpack(commit: str, folder: Path) -> None:
    packed = subprocess.run([GIT, "-C", str(ROOT), "archive", commit, *PACKAGES], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _sources(folder: Path) -> Iterable[Path]:
    return sorted(path for package in PACKAGES for path in (folder / package).rglob("*.py"))


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def _room_of(module: str) -> str:
    return module.rpartition(".")[0]


def _imports(module: str, path: Path, modules: Iterable[str]) -> set[str]:
    """Modules of ours that a file imports anywhere, also within functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return (names & set(modules)) - {module}


def _room(room: str, imports: Imports) -> dict[str, int]:
    """Counts of one folder; `__init__.py` is not a file that a reader has to open."""
    inside = {module for module in imports if _room_of(module) == room and not module.endswith("__init__")}
    arrows = {module: imports[module] & inside for module in inside}
    return {"files": len(inside), "imports": sum(map(len, arrows.values())), "in_circles": _in_circles(arrows)}


def _in_circles(arrows: Imports) -> int:
    """How many files import themselves by way of others."""
    return sum(module in _reached(module, arrows) for module in arrows)


def _reached(module: str, arrows: Imports) -> set[str]:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        targets = arrows[waiting.pop()] - reached
        reached |= targets
        waiting += targets
    return reached


def _house_words(path: Path) -> Iterable[str]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return [token.string for token in tokens if token.type == tokenize.NAME and token.string in HOUSE_WORDS]


def _total(rooms: dict[str, dict[str, int]], words: Counter[str]) -> dict[str, int]:
    return {
        "rooms": sum(room["files"] > 0 for room in rooms.values()),
        "files in the largest room": max(room["files"] for room in rooms.values()),
        "imports within rooms": sum(room["imports"] for room in rooms.values()),
        "files in circles": sum(room["in_circles"] for room in rooms.values()),
        "uses of house words": words.total(),
    }


def _table(before: dict[str, Any], after: dict[str, Any]) -> str:
    rows = [f"| {key} | {before['total'][key]} | {after['total'][key]} |" for key in before["total"]]
    return "\n".join(["| | before | after |", "| --- | --- | --- |", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    before, after = measure(options.before), measure(options.after)
    result = {"environment": provenance(), "before": before, "after": after}
    sys.stdout.write((json.dumps(result, indent=1) if options.json else _table(before, after)) + "\n")


if __name__ == "__main__":
    main()
