"""Options that several commands take together: a parameter whose type is a data class stands for one for each field.

Commands also take the earlier names of their options, which their help leaves out.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

Command = TypeVar("Command", bound=Callable[..., None])


EARLIER_NAMES: Final = {
    "--account": "--shares-budget-with",
    "--evaluate": "--evaluation",
    "--images": "--synthetic-images",
    "--n": "--synthetic-images",
    "--no-evaluate": "--no-evaluation",
    "--repo": "--repository",
}
"""Names that options had in 1.0, with those of today."""


def complete_help(text: str) -> str:
    """Fill in the methods and presets of this installation, which are imported for help alone."""
    from datalens_service.methods.registered import describe_public_use, list_methods
    from datalens_service.planning.presets import PRESETS

    made: dict[str, list[str]] = {"generator": ["Of images:"], "classifier": ["Of a classifier:"]}
    for kind in list_methods():
        made[kind.facts.result].append(f"- {kind.model_fields['name'].default}: {kind.facts.summary}")
    methods = "\n\n".join(line for lines in made.values() for line in lines)
    return text.format(methods=methods, presets=", ".join(PRESETS), public_use=describe_public_use())


class _Command(TyperCommand):
    """A command that takes earlier names of its options, too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with what methods state of themselves."""
        for option in self.params:
            if isinstance(option, TyperOption) and option.help and "{" in option.help:
                option.help = complete_help(option.help)
        super().format_help(ctx, formatter)

    def make_parser(self, ctx: Any) -> Any:
        """Build the parser with another option for the earlier names of one."""
        parser = super().make_parser(ctx)
        for option in self.params:
            if isinstance(option, TyperOption) and (names := _list_earlier(option.opts)):
                earlier = copy(option)
                earlier.opts, earlier.secondary_opts = names, _list_earlier(option.secondary_opts)
                earlier.add_to_parser(parser, ctx)
        return parser


def _list_earlier(names: Sequence[str]) -> list[str]:
    return [earlier for earlier, name in EARLIER_NAMES.items() if name in names]


class Commands(typer.Typer):
    """Commands of a group, each of which may take options together."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """A command, with its groups of options spread."""
        register = super().command(name, cls=_Command, **settings)

        def add(command: Command) -> Command:
            register(spread(command))
            return command

        return add


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer takes it, with an option of its own for each annotated field of a data class."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options = {
        option.name: option
        for one in signature(command).parameters.values()
        for option in (_options(groups[one.name]) if one.name in groups else [one.replace(annotation=hints[one.name])])
    }

    @wraps(command)
    def call(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{option.name: values.pop(option.name) for option in _options(kind)})
        command(**values)

    keywords = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options.values()]
    call.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {name: option.annotation for name, option in options.items()}
    return call


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        # The others are no options.
        if hasattr(hints[field.name], "__metadata__"):
            default = Parameter.empty if field.default is MISSING else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])
