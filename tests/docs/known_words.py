"""Whether the words of a command exist: commands and options of datalens, arguments of benchmarks, scripts, extras."""

import argparse
import importlib
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import typer

from datalens_service.cli.app import app
from tests.docs.commands import ROOT

_OPERATORS = frozenset(";|&><()")
_EXTRAS = re.compile(r"datalens-service\[([\w,]+)\]")


def find_unknown_words(command: str) -> list[str]:
    """Words that a command line uses and nothing knows."""
    words = _split(command)
    # To kubectl it is the name of a namespace.
    words = words[:0] if words[0] == "kubectl" else words
    unknown = [word for tail in _tails(words, ["datalens"]) for word in _unknown_to_datalens(tail)]
    unknown += [word for tail in _tails(words, ["-m", "datalens_service.cli"]) for word in _unknown_to_datalens(tail)]
    for name in re.findall(r"-m (benchmarks[\w.]*)", command):
        unknown += [word for tail in _tails(words, ["-m", name]) for word in _unknown_to_benchmark(name, tail)]
    scripts = re.findall(r"(?:^| )((?:scripts|\.ci)/\S+)", command)
    extras = [extra for found in _EXTRAS.findall(command) for extra in found.split(",")]
    unknown += [script for script in scripts if not os.access(ROOT / script, os.X_OK)]
    return unknown + [extra for extra in extras if extra not in _extras()]


def lacks_arguments(span: str) -> bool:
    """Whether a span names a command of datalens that cannot be typed without more words."""
    words = span.split()[1:]
    command, left = _find_command(words)
    needs = [one for one in command.params if one.required]
    return not left and (hasattr(command, "commands") or bool(needs))


def list_options() -> set[str]:
    """All options of datalens."""
    return {name for command in _below(_datalens()) for name in _options(command)}


def list_benchmark_options(name: str) -> set[str]:
    """All options of a benchmark."""
    return {option for action in _actions(name) for option in action.option_strings}


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _tails(words: list[str], head: list[str]) -> Iterator[list[str]]:
    """What follows `head`, up to the end of that command."""
    for start in range(len(words)):
        if words[start : start + len(head)] == head:
            tail = words[start + len(head) :]
            end = next((number for number, word in enumerate(tail) if set(word) <= _OPERATORS), len(tail))
            yield tail[:end]


def _unknown_to_datalens(words: list[str]) -> list[str]:
    command, left = _find_command(words)
    if hasattr(command, "commands") and left and not left[0].startswith("-") and not left[0].isupper():
        return left[:1]
    return [name for name in _named_options(left) if name not in _options(command)]


def _find_command(words: list[str]) -> tuple[Any, list[str]]:
    command = _datalens()
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


@cache
def _datalens() -> Any:
    return typer.main.get_command(app)


def _below(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from _below(one)


def _options(command: Any) -> set[str]:
    return {"--help"} | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def _named_options(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--\w", word)]


def _unknown_to_benchmark(name: str, words: list[str]) -> list[str]:
    choices = [action.choices for action in _actions(name) if not action.option_strings and action.choices]
    first = [word for word in words[:1] if choices and word not in choices[0] and not word.startswith("-")]
    return first + [option for option in _named_options(words) if option not in list_benchmark_options(name)]


def _actions(name: str) -> list[argparse.Action]:
    parser = _find_parser(name)
    actions = [] if parser is None else list(parser._actions)
    for action in list(actions):
        if isinstance(action, argparse._SubParsersAction):
            actions += [one for below in action.choices.values() for one in below._actions]
    return actions


@cache
def _find_parser(name: str) -> argparse.ArgumentParser | None:
    """Of a benchmark, which is started as far as its reading of arguments; None where it has no options."""
    found: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: Any) -> None:
        found.append(parser)
        raise _Caught

    module = importlib.import_module(f"{name}.__main__" if (ROOT / name.replace(".", "/")).is_dir() else name)
    if not hasattr(module, "argparse"):
        return None
    with patch.object(argparse.ArgumentParser, "parse_args", catch), patch.object(sys, "argv", [name]):
        try:
            module.main()
        except _Caught:
            return found[0]
    return None


class _Caught(Exception):
    """Arguments are read now."""


@cache
def _extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
