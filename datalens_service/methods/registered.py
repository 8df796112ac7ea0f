"""Every method that a request may name: those of this product, and those of installed plug-ins.

This is a module of its own because the module of a plug-in imports `methods.base` and may be imported first.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from datalens_service.base.errors import StateConflict
from datalens_service.base.plugins import list_plugins, load
from datalens_service.methods import AnyMethod, Method
from datalens_service.methods.facts import PublicUse
from datalens_service.methods.voting.rivals import RIVALS
from datalens_service.methods.wall_rules import find_complaints_of_modules

BUILT_IN: Final = frozenset({kind.model_fields["name"].default for kind in typing.get_args(AnyMethod)} | RIVALS.keys())
"""Names of methods that belong to this product."""


def check_plugin(name: str, kind: Any) -> type[Method]:
    """Return the class of a plug-in, if nobody can mistake it for another method.

    Raises:
        StateConflict: It is no method, is not complete, has another name, or the name or title of a method of this
            product.
    """
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise StateConflict(f"The plug-in {name} is no subclass of datalens_service.methods.base.Method.")
    field = kind.model_fields.get("name")
    if field is None or typing.get_args(field.annotation) != (name,) or field.default != name:
        raise StateConflict(f'The plug-in {name} needs the attribute: name: Literal["{name}"] = "{name}".')
    if inspect.isabstract(kind):
        raise StateConflict(f"The plug-in {name} lacks {' and '.join(sorted(kind.__abstractmethods__))}.")
    if name in BUILT_IN:
        raise StateConflict(f"The plug-in {name} has the name of a method of this product.")
    if kind.facts.title in {built_in.facts.title for built_in in typing.get_args(AnyMethod)}:
        raise StateConflict(f"The plug-in {name} has the title of a method of this product: {kind.facts.title}.")
    return kind


def check_source(name: str, kind: type[Method]) -> None:
    """Refuse a plug-in whose modules do what no method may.

    Raises:
        StateConflict: Names the first violation; docs/integrations.md says how a method is written.
    """
    for complaint in find_complaints_of_modules(sys.modules[kind.__module__]):
        raise StateConflict(
            f"The plug-in {name} may reach private records in another way than by a charged sum: {complaint}. "
            "docs/integrations.md says what a method may import."
        )


def _plugins() -> tuple[type[Method], ...]:
    kinds = {entry.name: check_plugin(entry.name, load(entry)) for entry in list_plugins()}
    for name, kind in kinds.items():
        check_source(name, kind)
    if len(kinds) < len(list_plugins()):
        raise StateConflict("Two installed plug-ins have the same name. Remove one of the packages.")
    return tuple(kinds.values())


if TYPE_CHECKING:
    RegisteredMethod = AnyMethod
else:
    RegisteredMethod = typing.Union[(AnyMethod, *_plugins())]
"""Told apart by `name`."""

_USES: Final[dict[PublicUse, str]] = {
    "start": "training by {} begins with these images",
    "finish": "what is drawn by {} is finished by a denoiser that learned from these images",
    "material": "results of {} are made of these images",
}


def list_methods() -> tuple[type[Method], ...]:
    """List every method that a request may name, in the order of the registry."""
    return typing.get_args(RegisteredMethod)


def list_names(kinds: Iterable[type[Method]]) -> str:
    """Join names of methods, for a sentence."""
    *others, last = (f"`{kind.model_fields['name'].default}`" for kind in kinds)
    return f"{', '.join(others)} and {last}" if others else last


def describe_public_use() -> str:
    """Tell in a sentence which methods take public images, and for what."""
    takers = {use: [kind for kind in list_methods() if kind.facts.public_images == use] for use in _USES}
    said = "; ".join(_USES[use].format(list_names(kinds)) for use, kinds in takers.items())
    return f"{said[0].upper()}{said[1:]}."
