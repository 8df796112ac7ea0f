"""Docstrings of the product inform in a sentence, or are not there where the name says it."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from repository import ROOT

ROOMS: Final = ("api", "datalens_service", "deploy", "migrations", "scripts", "workers")
Documented: Final = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

FEWEST_WORDS: Final = 4
RIDDLE: Final = re.compile(r"(How|Of|What|When|Where|Whether|Which|Who|Whoever|Whom|Whose|Why)\b")
"""Beginnings of clauses and genitives that leave their reader to guess the subject."""
SECTION: Final = re.compile(r"^ *(?:Args|Attributes):$", re.M)
ENTRY: Final = re.compile(r"^ +\w+: (.*)$", re.M)


def list_faults(docstring: str) -> Iterator[str]:
    """The faults of one docstring, by its first paragraph."""
    summary = docstring.partition("\n\n")[0]
    if len(docstring.split()) < FEWEST_WORDS:
        yield "is too short to say more than the name"
    if RIDDLE.match(summary) or re.search(r"\?( |$)", summary):
        yield "begins with a clause or a genitive, or asks"
    if not summary.endswith("."):
        yield "does not end a sentence"


def list_riddles(node: ast.AST) -> Iterator[str]:
    """Texts below a name, and entries of a section, that begin with a clause or a genitive."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        entries = ENTRY.findall(node.value.value) if SECTION.search(node.value.value) else []
        yield from (text for text in [node.value.value, *entries] if RIDDLE.match(text) and "?" not in text)


def find_faults(source: str) -> list[str]:
    """All faults of the docstrings of a module, and riddles in all that is written like one, by line."""
    nodes = list(ast.walk(ast.parse(source)))
    documented = [(node, ast.get_docstring(node)) for node in nodes if isinstance(node, Documented)]
    faults = [
        f"{getattr(node, 'lineno', 1)} {fault}: {docstring}"
        for node, docstring in documented
        if docstring is not None
        for fault in list_faults(docstring)
    ]
    return faults + [f"{node.lineno} is a riddle: {text}" for node in nodes for text in list_riddles(node)]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_are_sentences(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): faults
        for path in sorted((ROOT / room).rglob("*.py"))
        if (faults := find_faults(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "docstring",
    [
        "Three.",
        "As the classifier.",
        "Of all draws, in 1e-15 of μ².",
        "What a plan costs.",
        "Return the sum",
        "Does a proof hold together? One line per claim.",
    ],
)
def test_a_riddle_is_found(docstring: str) -> None:
    assert find_faults(f'def count():\n    """{docstring}"""\n') != []


def test_a_sentence_is_no_fault() -> None:
    assert find_faults('def count():\n    """Return the number of votes."""\n') == []
