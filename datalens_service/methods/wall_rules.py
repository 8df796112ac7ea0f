"""The rules for the source of a method, and of all that contributions call: a list of what may be imported.

The list names libraries that compute. Libraries that read files, clocks, frames or objects of others are not on it, nor
are the names by which a listed library would lead there. A test holds this product's own methods to it, and a plug-in
that does not keep it is not loaded. It finds mistakes, but stops nobody who means to get past it
(docs/mechanisms/wall.md).
"""

import ast
import builtins
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

PRODUCT: Final = "datalens_service"

LIBRARIES: Final = frozenset({
    "__future__", "abc", "bisect", "collections", "copy", "dataclasses", "enum", "fractions", "functools", "hashlib",
    "heapq", "itertools", "json", "math", "numbers", "operator", "statistics", "string", "typing", "numpy", "pydantic",
    "scipy", "torch",
})  # fmt: skip
"""Libraries that a method may import, apart from names that lead around the wall."""

_PARTS_OF_LIBRARIES: Final = frozenset({
    "collections.abc", "numpy.fft", "numpy.linalg", "numpy.polynomial", "numpy.random", "numpy.typing", "scipy.cluster",
    "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.ndimage", "scipy.optimize",
    "scipy.signal", "scipy.sparse", "scipy.spatial", "scipy.special", "scipy.stats", "torch.autograd", "torch.cuda",
    "torch.fft", "torch.func", "torch.linalg", "torch.nn", "torch.optim", "torch.random", "torch.special",
})  # fmt: skip
"""Their modules that compute: others read files, compile, measure times or set what all share."""
_WITH_ALL_THEIR_PARTS: Final = ("torch.nn.", "torch.optim.", "scipy.cluster.", "scipy.sparse.", "scipy.spatial.")
_OF_NUMPY_RANDOM: Final = frozenset({"default_rng", "Generator", "SeedSequence", "PCG64", "Philox"})
"""Generators of a method's own: other names are those of the one that all share."""

_ROOMS: Final = frozenset({
    "base.arrays", "base.errors", "base.fields", "base.parsing", "base.process_group", "base.progress", "base.wording",
    "data", "mechanisms", "methods", "models", "privacy",
})  # fmt: skip
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
_NAMES_OF_THE_DRIVER: Final = frozenset({
    "Account", "NoiseSource", "Vault", "UnitVault", "ShardVault", "TeacherVault", "TeachersApart", "Vaults",
    "read_only",
})  # fmt: skip
_PUBLIC_DATA: Final = frozenset({"Schema", "Images", "Labels", "ShardBatch", "MAXIMUM_SIDE", "MAXIMUM_CLASSES"})
"""Names of `data`, none of which reads records."""

_COMPUTING: Final = frozenset({
    "abs", "all", "any", "bin", "bool", "bytearray", "bytes", "callable", "chr", "classmethod", "complex", "dict",
    "divmod", "enumerate", "filter", "float", "frozenset", "hasattr", "hash", "hex", "int", "isinstance", "issubclass",
    "iter", "len", "list", "map", "max", "min", "next", "object", "oct", "ord", "pow", "property", "range", "repr",
    "reversed", "round", "set", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
    "Ellipsis", "False", "None", "NotImplemented", "True",
})  # fmt: skip
"""Functions of the language itself that a method may call, beside classes of errors."""
_BUILT_IN: Final = frozenset(
    name
    for name, value in vars(builtins).items()
    if name not in _COMPUTING and not (isinstance(value, type) and issubclass(value, BaseException))
) | {"__builtins__"}
_OF_CLASSES: Final = frozenset({"__match_args__", "__annotations__"})
"""Attributes of a class by which a pattern, or a text that is evaluated, reaches what no source names."""
_FRAMES: Final = frozenset({
    "gi_frame", "gi_yieldfrom", "cr_frame", "ag_frame", "tb_frame", "tb_next", "f_back", "f_locals", "f_globals",
    "f_builtins",
})  # fmt: skip
_OF_LIBRARIES: Final = frozenset({
    "DirectoryPath", "FilePath", "Formatter", "ForwardRef", "ImportString", "NewPath", "TypeAdapter", "attrgetter",
    "create_model", "default_generator", "dispatch_table", "file_digest", "format", "format_map", "get_type_hints",
    "make_dataclass", "save_npz", "use_deterministic_algorithms", "methodcaller", "save", "savez", "savez_compressed",
    "savetxt", "load", "loadtxt", "genfromtxt", "fromfile", "from_file", "tofile", "memmap", "seterr", "seterrcall",
    "setbufsize", "ctypes", "ctypeslib", "data_ptr", "datetime64", "hub", "load_library", "set_printoptions",
    "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "manual_seed_all", "seed_everything", "set_default_dtype", "set_rng_state",
})  # fmt: skip
"""Names by which libraries on the list lead to files, clocks, addresses, and settings that outlive a question."""
_OF_THE_WHOLE_PROCESS: Final = frozenset(
    {
        ("torch", "manual_seed"),
        ("torch", "seed"),
        ("torch", "compile"),
        ("torch.random", "manual_seed"),
        ("torch.random", "seed"),
        ("torch.cuda", "Event"),
    }
)

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
        elif isinstance(node, ast.Name) and node.id in (_BUILT_IN if isinstance(node.ctx, ast.Load) else _OF_CLASSES):
            yield _at(node, f"uses {node.id}")
        elif isinstance(node, ast.Try | ast.With) and any(map(_asks, ast.walk(node))):
            yield _at(node, "asks where it could catch an error, or hear a warning")
        elif isinstance(node, ast.FunctionDef) and node.name in _PARTS_OF_THE_DOOR:
            yield _at(node, f"defines {node.name}")
        elif isinstance(node, ast.Global):
            yield _at(node, "writes to names of its module")
        elif isinstance(node, ast.MatchClass):
            yield from (_at(node, f"matches {name}") for name in node.kwd_attrs if name[0] == "_" or name in _FRAMES)
        for text in _texts_of_types(node):
            yield from find_complaints(text, package)


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


def _at(node: ast.stmt | ast.expr | ast.pattern, complaint: str) -> str:
    return f"line {node.lineno}: {complaint}"


def _of_import(node: ast.Import, package: str) -> Iterator[str]:
    for name in node.names:
        root = name.name.partition(".")[0]
        if root == PRODUCT or (root != package and not _is_listed(name.name)):
            yield _at(node, f"imports {name.name}")


def _of_import_from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    module, names = node.module or "", [name.name for name in node.names]
    if node.level:
        return
    root, _, rest = module.partition(".")
    if root == PRODUCT:
        yield from (_at(node, f"imports {name} of {module}") for name in names if not _is_open(module, rest, name))
    elif root != package and not _is_listed(module):
        yield _at(node, f"imports {module}")
    elif root != package:
        wrong = [name for name in names if _is_closed(module, name)]
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
    path = _path_of(of, modules)
    if name.startswith("_") and name not in _PUBLIC_UNDERSCORES and not _is_own(of):
        yield _at(node, f"reaches for {name} of something else")
    if name in _FRAMES:
        yield _at(node, f"reaches for {name}")
    if path:
        if _is_closed(path, name):
            yield _at(node, f"uses {path}.{name}")
    elif name in _OF_LIBRARIES - {"load", "save", "seed_everything"}:
        yield _at(node, f"uses {name}")


def _asks(node: ast.AST) -> bool:
    """Tell whether something is yielded and an answer is used, or a question is yielded: contributions yield rows."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.NamedExpr | ast.Call):
        return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.iter_child_nodes(node))
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


def _path_of(value: ast.expr, modules: dict[str, str]) -> str:
    """Return the module that an expression such as `torch.nn` names; empty where it names none."""
    if isinstance(value, ast.Attribute):
        parent = _path_of(value.value, modules)
        path = f"{parent}.{value.attr}"
        return path if parent and (path in sys.modules or _is_listed(path)) else ""
    return modules.get(value.id, "") if isinstance(value, ast.Name) else ""


def _texts_of_types(node: ast.AST) -> Iterator[ast.Module]:
    """Yield the sources of annotations that are texts: whoever looks for types evaluates them."""
    annotations = [getattr(node, name, None) for name in ("annotation", "returns")]
    waiting: list[ast.AST] = [one for one in annotations if isinstance(one, ast.expr)]
    for one in waiting:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            with suppress(SyntaxError):
                yield ast.parse(one.value)
        elif not (isinstance(one, ast.Subscript) and ast.unparse(one.value).endswith("Literal")):
            waiting += ast.iter_child_nodes(one)


def _is_listed(module: str) -> bool:
    return module in LIBRARIES | _PARTS_OF_LIBRARIES or module.startswith(_WITH_ALL_THEIR_PARTS)


def _is_closed(module: str, name: str) -> bool:
    """Tell whether a name of a module of a library leads to files, clocks, objects of others, or what all share."""
    if name in _OF_LIBRARIES or (module, name) in _OF_THE_WHOLE_PROCESS or (module, name[:4]) == ("torch", "set_"):
        return True
    if module == "numpy.random":
        return name not in _OF_NUMPY_RANDOM
    return _leads_elsewhere(module, name)


def _leads_elsewhere(module: str, name: str) -> bool:
    """Tell whether a name of a library is a module that is not on the list, as `torch.os` and `numpy.lib` are."""
    if module.partition(".")[0] not in LIBRARIES or (module.startswith("torch") and "torch" not in sys.modules):
        return False
    found = getattr(importlib.import_module(module), name, None)
    return isinstance(found, ModuleType) and not _is_listed(found.__name__)
