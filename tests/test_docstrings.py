"""Names in docstrings exist, in backticks and in lists of arguments, so that no rename leaves the old name behind.

A plain word is looked up where it stands: in its function with the classes that this names, in its class with its
bases, at the top of its module, among the texts in it. Any other (`SigningKey`, `PRESETS`, `dp_gan_paper`) may stand
elsewhere in the product. Values, columns and other programs are written without backticks.
"""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Final

from repository import ROOT

ROOMS: Final = ("datalens_service", "api", "workers")
FILES: Final = [
    path.as_posix() for room in (*ROOMS, "tests", "benchmarks", "scripts") for path in (ROOT / room).rglob("*.py")
]
SPAN: Final = re.compile(r"`([^`\n(]+)(?:\([^`\n]*\))?`")
SECTION: Final = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n|\n)+)", re.M)
ENTRY: Final = re.compile(r"^ {4}(\w+):", re.M)
NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DATA_FILE: Final = re.compile(r"\w+\.(json|jsonl|npy|npz|csv)")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def product() -> dict[str, ast.Module]:
    """All modules by their paths, parsed for this test and not wherever tests are collected."""
    return {
        path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): ast.parse(path.read_text())
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }


@cache
def words(node: ast.AST) -> set[str]:
    """All that a piece of source names: what it defines, takes, uses and imports, and its texts."""
    found: set[str] = set()
    for part in ast.walk(node):
        match part:
            case ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found |= set((other or name).split("."))
            case ast.Constant(value=str(text)):
                found.add(text)
    return found


def texts(node: ast.AST) -> set[str]:
    """Its texts alone."""
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


@cache
def anywhere() -> set[str]:
    """What any module names."""
    return set[str]().union(*map(words, product().values()))


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """All classes by their names."""
    found = defaultdict[str, list[ast.ClassDef]](list)
    for tree in product().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(node)
    return found


@cache
def members(name: str) -> set[str]:
    """What the classes of that name and their bases name; nothing for any other word."""
    found: set[str] = set()
    for node in classes().get(name, ()):
        found |= words(node) | members_of_all(set[str]().union(*map(words, node.bases)) - {name})
    return found


def members_of_all(names: set[str]) -> set[str]:
    """The same for several names."""
    return set[str]().union(*map(members, names & classes().keys()))


@cache
def modules(name: str) -> list[str]:
    """Modules and packages that may be meant by a dotted name, which may begin at any package."""
    return [path for path in product() if f"/{path}".endswith(f"/{name.replace('.', '/')}")]


def exists(name: str, seen: set[str]) -> bool:
    """Whether a name stands for something, where `seen` are the words around it."""
    if name in seen or name in dir(builtins) or members(name) or modules(name):
        return True
    owner, _, last = name.rpartition(".")
    if not owner:
        return name in anywhere() and not (name.isalpha() and name.islower())
    if attributes := members(owner.rpartition(".")[2]):
        return last in attributes
    if found := modules(owner):
        return any(last in words(product()[path]) for path in found)
    # Of another package, or of something that is called so here.
    return find_spec(owner.partition(".")[0]) is not None or (owner in seen and last in anywhere())


def stale(node: ast.Module | Definition, seen: set[str]) -> Iterator[str]:
    """Names in the docstring of a module, class or function that stand for nothing."""
    docstring = ast.get_docstring(node) or ""
    for section in SECTION.findall(docstring + "\n"):
        yield from set(ENTRY.findall(section)) - words(node)
    for name in SPAN.findall(docstring):
        if name.endswith(".py"):
            if not any(path.endswith(f"/{name}") for path in FILES):
                yield name
        elif NAME.fullmatch(name) and not DATA_FILE.fullmatch(name) and not exists(name, seen):
            yield name


def stale_within(node: ast.AST, seen: set[str]) -> Iterator[str]:
    """The same for all that a module or class defines."""
    if isinstance(node, Definition):
        seen = seen | words(node) | (members(node.name) or members_of_all(words(node)))
        yield from stale(node, seen)
    for child in ast.iter_child_nodes(node):
        yield from stale_within(child, seen)


def stale_names(tree: ast.Module) -> list[str]:
    """The same for a module and all that it defines."""
    top = (node for node in tree.body if not isinstance(node, Definition))
    bound = {node.name for node in tree.body if isinstance(node, Definition)}.union(*map(words, top))
    named = words(tree)
    return [*stale(tree, named | members_of_all(named)), *stale_within(tree, bound | texts(tree))]


def test_names_in_docstrings_exist() -> None:
    found = {path: stale_names(tree) for path, tree in product().items()}
    assert {path: names for path, names in found.items() if names} == {}
