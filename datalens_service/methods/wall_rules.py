"""The rules for the source of a method, and of all that contributions call: a list of what may be imported.

The list names libraries that compute. Libraries that read files, clocks, frames or objects of others are not on it, nor
are the names by which a listed library would lead there. A test holds this product's own methods to it, and a plug-in
that does not keep it is not loaded. It finds mistakes, but stops nobody who means to get past it
(docs/mechanisms/wall.md).
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

PRODUCT: Final = "datalens_service"

LIBRARIES: Final = frozenset(
    {
        "__future__",
        "abc",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "statistics",
        "string",
        "typing",
        "numpy",
        "pydantic",
        "scipy",
        "torch",
    }
)
"""Libraries that a method may import, apart from names that lead around the wall."""

_ROOMS: Final = frozenset(
    {
        "base.errors",
        "base.fields",
        "base.parsing",
        "base.process_group",
        "base.progress",
        "base.wording",
        "data",
        "mechanisms",
        "methods",
        "models",
        "privacy",
    }
)
"""Rooms of this product that a method may import from, and modules of its base."""
_OF_THE_DRIVER: Final = frozenset(
    f"{PRODUCT}.{name}"
    for name in (
        "methods.driver",
        "methods.wall_rules",
        "mechanisms.vaults",
        "mechanisms.apart",
        "mechanisms.confined",
        "privacy.budget",
    )
)
_NAMES_OF_THE_DRIVER: Final = frozenset(
    {
        "Account",
        "NoiseSource",
        "Vault",
        "UnitVault",
        "ShardVault",
        "TeacherVault",
        "TeachersApart",
        "Vaults",
        "read_only",
    }
)
_PUBLIC_DATA: Final = frozenset({"Schema", "Images", "Labels", "ShardBatch", "MAXIMUM_SIDE", "MAXIMUM_CLASSES"})
"""Names of `data`, none of which reads records."""

_BUILT_IN: Final = frozenset(
    {
        "getattr",
        "setattr",
        "delattr",
        "vars",
        "globals",
        "locals",
        "eval",
        "exec",
        "compile",
        "open",
        "print",
        "input",
        "breakpoint",
        "__import__",
        "__builtins__",
        "__loader__",
        "__spec__",
    }
)
_FRAMES: Final = frozenset(
    {
        "gi_frame",
        "gi_yieldfrom",
        "cr_frame",
        "ag_frame",
        "tb_frame",
        "tb_next",
        "f_back",
        "f_locals",
        "f_globals",
        "f_builtins",
    }
)
_OF_LIBRARIES: Final = frozenset(
    {
        "attrgetter",
        "methodcaller",
        "save",
        "savez",
        "savez_compressed",
        "savetxt",
        "load",
        "loadtxt",
        "genfromtxt",
        "fromfile",
        "from_file",
        "tofile",
        "memmap",
        "seterr",
        "seterrcall",
        "setbufsize",
        "ctypes",
        "ctypeslib",
        "data_ptr",
        "datetime64",
        "hub",
        "load_library",
        "set_printoptions",
        "register_module_forward_hook",
        "register_module_forward_pre_hook",
        "register_module_full_backward_hook",
        "manual_seed_all",
        "seed_everything",
        "set_default_dtype",
        "set_rng_state",
    }
)
"""Names by which libraries on the list lead to files, clocks, addresses, and settings that outlive a question."""
_OF_THE_WHOLE_PROCESS: Final = frozenset({("torch", "manual_seed"), ("torch", "seed"), ("random", "seed")})

_PARTS_OF_THE_DOOR: Final = frozenset({"exact_sum", "noisy_sum", "discrete_gaussian"})
"""Names of mechanisms and of noise: a method's own would be handed what others contribute, or add nothing to it."""
_PUBLIC_UNDERSCORES: Final = frozenset({"_replace", "_asdict", "_fields"})


def find_complaints(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield what a module does that no method may.

    Args:
        tree: Its source.
        package: The package that brings it, whose modules it may import; each must keep the same rules.
    """
    modules = _imported_modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from _of_import(node, package)
        elif isinstance(node, ast.ImportFrom):
            yield from _of_import_from(node, package)
        elif isinstance(node, ast.Attribute):
            yield from _of_attribute(node, modules)
        elif isinstance(node, ast.Name) and node.id in _BUILT_IN:
            yield _at(node, f"uses {node.id}")
        elif isinstance(node, ast.Try | ast.With) and any(map(_asks, ast.walk(node))):
            yield _at(node, "asks where it could catch an error, or hear a warning")
        elif isinstance(node, ast.FunctionDef) and node.name in _PARTS_OF_THE_DOOR:
            yield _at(node, f"defines {node.name}")
        elif isinstance(node, ast.Global):
            yield _at(node, "writes to names of its module")


def find_complaints_of_modules(module: ModuleType) -> Iterator[str]:
    """Yield complaints about a module that was loaded, and about all that it imports of its own package."""
    package, found = module.__name__.partition(".")[0], [module.__name__]
    for name in found:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        tree = ast.parse(Path(spec.origin).read_bytes())
        yield from (f"{name}, {complaint}" for complaint in find_complaints(tree, package))
        imported = _imported_of(tree, spec.parent or "")
        found += [one for one in imported if one.partition(".")[0] == package and one not in found]


def _imported_of(tree: ast.Module, parent: str) -> Iterator[str]:
    """Yield modules, and what may be modules in a package, that a source imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), parent)
            yield module
            if hasattr(sys.modules.get(module), "__path__"):
                yield from (f"{module}.{name.name}" for name in node.names)


def _at(node: ast.stmt | ast.expr, complaint: str) -> str:
    return f"line {node.lineno}: {complaint}"


def _of_import(node: ast.Import, package: str) -> Iterator[str]:
    for name in node.names:
        root = name.name.partition(".")[0]
        if root == PRODUCT or root not in LIBRARIES | {package}:
            yield _at(node, f"imports {name.name}")


def _of_import_from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    module, names = node.module or "", [name.name for name in node.names]
    if node.level:
        return
    root, _, rest = module.partition(".")
    if root == PRODUCT:
        yield from (_at(node, f"imports {name} of {module}") for name in names if not _is_open(module, rest, name))
    elif root not in LIBRARIES | {package}:
        yield _at(node, f"imports {module}")
    elif root != package:
        wrong = [name for name in names if name in _OF_LIBRARIES or _leads_elsewhere(module, name)]
        yield from (_at(node, f"imports {name} of {module}") for name in wrong)


def _is_open(module: str, rest: str, name: str) -> bool:
    """Tell whether a method may import a name of this product."""
    room, _, inner = rest.partition(".")
    closed = module in _OF_THE_DRIVER or f"{module}.{name}" in _OF_THE_DRIVER or name in _NAMES_OF_THE_DRIVER
    if closed or name.startswith("_") or name == "*":
        return False
    if (module, name) == (f"{PRODUCT}.base.checkpoint", "State"):
        return True
    if room == "base":
        return f"base.{inner or name}" in _ROOMS
    return name in _PUBLIC_DATA if room == "data" else room in _ROOMS


def _of_attribute(node: ast.Attribute, modules: dict[str, str]) -> Iterator[str]:
    name, of = node.attr, node.value
    root = of.id if isinstance(of, ast.Name) else ""
    if name.startswith("_") and name not in _PUBLIC_UNDERSCORES and not _is_own(of):
        yield _at(node, f"reaches for {name} of something else")
    if name in _FRAMES:
        yield _at(node, f"reaches for {name}")
    if root in modules:
        path = modules[root]
        if name in _OF_LIBRARIES or (path, name) in _OF_THE_WHOLE_PROCESS or _leads_elsewhere(path, name):
            yield _at(node, f"uses {path}.{name}")
    elif name in _OF_LIBRARIES - {"load", "save", "seed_everything"}:
        yield _at(node, f"uses {name}")


def _asks(node: ast.AST) -> bool:
    """Tell whether something is yielded and an answer is used, or a question is yielded: contributions yield rows."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.NamedExpr | ast.Call):
        return any(isinstance(part, ast.Yield) for part in ast.iter_child_nodes(node))
    return isinstance(node, ast.Yield) and node.value is not None and "Ask(" in ast.unparse(node.value)


def _is_own(value: ast.expr) -> bool:
    """Recognise `self`, `cls` and `super()`."""
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super"
    return called or (isinstance(value, ast.Name) and value.id in {"self", "cls"})


def _imported_modules(tree: ast.Module) -> dict[str, str]:
    """Return modules by the names that they have in a source."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                found[name.asname or name.name.partition(".")[0]] = (
                    name.name if name.asname else name.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {
                name.asname or name.name: f"{node.module}.{name.name}"
                for name in node.names
                if f"{node.module}.{name.name}" in sys.modules
            }
    return found


def _leads_elsewhere(module: str, name: str) -> bool:
    """Tell whether a name of a library is a module of another that is not on the list, as `torch.os` is."""
    if module.partition(".")[0] not in LIBRARIES or (module.startswith("torch") and "torch" not in sys.modules):
        return False
    found = getattr(importlib.import_module(module), name, None)
    return isinstance(found, ModuleType) and found.__name__.partition(".")[0] not in LIBRARIES
