"""Every text of the product that can reach a reader as an error, a refusal, a warning or a notice, from its source.

What is given to an error is a text, wherever it stands: in place, in a constant, in a variable, behind a function that
passes it on. Texts of warnings and of problem types are found by the names that they have.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from datalens_service.base import errors
from datalens_service.client import errors as client_errors
from repository import ROOT

TOKEN: Final = re.compile(r"⟦([\w.{}]+)⟧")
_PACKAGES: Final = ("datalens_service", "api", "workers")
_ALSO_SHOWN: Final = {
    "bad",
    "BadFile",
    "ValueError",
    "BadParameter",
    "RefusedMember",
    "SignatureInvalid",
    "PydanticCustomError",
}
_DOCUMENTS: Final = {"MESSAGES", "_SENTENCES", "_OF_ERRORS", "INTERNAL", "LOST"}
"""Constants whose strings are texts."""

_TELLING: Final = {"warnings", "rationale", "refusal_of_public_data"}
"""Functions whose strings are texts."""


class Text(NamedTuple):
    """A text with what is filled in as `{}`.

    Attributes:
        place: File and line.
        error: Name of the class or function that it is given to.
    """

    place: str
    error: str
    words: str


class _Module(NamedTuple):
    path: str
    tree: ast.Module
    assigned: dict[str, list[ast.expr]]


def error_names() -> frozenset[str]:
    """Names of all classes whose first argument a reader may see."""
    own = {found.__name__ for found in all_errors(errors.DatalensError)}
    return frozenset(own | {found.__name__ for found in all_errors(client_errors.ClientError)} | _ALSO_SHOWN)


def all_errors(base: type[Exception]) -> Iterator[type[Exception]]:
    """A class and all that are made from it."""
    yield base
    for child in base.__subclasses__():
        yield from all_errors(child)


@cache
def texts() -> tuple[Text, ...]:
    """All of them."""
    modules = _modules()
    shared = {name: values for module in modules for name, values in module.assigned.items() if name.isupper()}
    speaking = _speaking(modules)
    return tuple(dict.fromkeys(text for module in modules for text in _of_module(module, shared, speaking)))


@cache
def literals() -> tuple[Text, ...]:
    """All strings of the product with a token in them, wherever they stand."""
    found = []
    for module in _modules():
        if module.path == "datalens_service/base/wording.py":
            continue
        filled = [node for node in ast.walk(module.tree) if isinstance(node, ast.JoinedStr)]
        parts = {id(part) for node in filled for part in node.values}
        for node in ast.walk(module.tree):
            words = "" if id(node) in parts else _written(node)
            if "⟦" in words:
                found.append(Text(f"{module.path}:{node.lineno}", "", words))
    return tuple(found)


@cache
def _modules() -> tuple[_Module, ...]:
    paths = (path for package in _PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(_parsed(path.relative_to(ROOT).as_posix(), path) for path in paths)


def _parsed(name: str, path: Path) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if _is_stated(node) else []
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                assigned.setdefault(target.id, []).append(node.value)
    return _Module(name, tree, assigned)


def _is_stated(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign)


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
    return ""


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "extra")]


def _speaking(modules: Iterable[_Module]) -> frozenset[str]:
    """Errors, and functions that pass an argument on to one."""
    functions = [
        node
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
    ]
    found, before = error_names() | {"ProblemType"}, frozenset[str]()
    while found != before:
        before, found = found, found | {node.name for node in functions if _passes_on(node, found)}
    return found


def _passes_on(function: ast.FunctionDef, speaking: frozenset[str]) -> bool:
    names = {each.arg for each in function.args.args if getattr(each.annotation, "id", "") == "str"}
    sentences = {"detail", "complaint", "sentence", "what", "text", "name", "missing"} & names
    if not sentences:
        return False
    calls = (node for node in ast.walk(function) if _called(node) in speaking)
    return any(
        isinstance(node, ast.Name) and node.id in sentences
        for call in calls
        for given in _arguments(call)  # type: ignore[arg-type]
        for node in ast.walk(given)
    )


def _of_module(module: _Module, shared: dict[str, list[ast.expr]], speaking: frozenset[str]) -> Iterator[Text]:
    known = {**shared, **module.assigned}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _called(node) in speaking:
            for argument in _arguments(node):
                yield from _read(module, argument, _called(node), known)
        if isinstance(node, ast.FunctionDef) and node.name in _TELLING:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return | ast.Assign) and inner.value is not None:
                    yield from _strings(module, inner.value, node.name)
    for name in _DOCUMENTS & module.assigned.keys():
        for value in module.assigned[name]:
            yield from _strings(module, value, name)


def _read(
    module: _Module, value: ast.expr, error: str, known: dict[str, list[ast.expr]], depth: int = 0
) -> Iterator[Text]:
    """The strings that an argument may be."""
    match value:
        case ast.Constant(value=str()) | ast.JoinedStr():
            yield Text(f"{module.path}:{value.lineno}", error, _written(value))
            inner = [part.value for part in getattr(value, "values", ()) if isinstance(part, ast.FormattedValue)]
        case ast.Name(id=name) if depth < 3:
            inner = known.get(name, [])
        case ast.IfExp(body=body, orelse=otherwise):
            inner = [body, otherwise]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case ast.Call(args=arguments) if _called(value) == "speak":
            inner = arguments
        case _:
            inner = []
    for part in inner:
        yield from _read(module, part, error, known, depth + 1)


def _strings(module: _Module, value: ast.AST, error: str) -> Iterator[Text]:
    """All strings that stand in an expression and are sentences."""
    for node in ast.walk(value):
        if " " in (words := _written(node)):
            yield Text(f"{module.path}:{getattr(node, 'lineno', 0)}", error, words)


def _written(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)  # type: ignore[misc]
