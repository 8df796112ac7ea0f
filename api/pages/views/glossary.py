"""The glossary of the documentation: a “?” of a page says the first sentence of an entry, and leads to the rest."""

import re
from importlib.resources import files
from typing import Final

_ENTRY: Final = re.compile(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", re.MULTILINE)


def read_glossary() -> dict[str, str]:
    """What words mean, in the order of the file."""
    text = files("api.pages").joinpath("glossary.md").read_text(encoding="utf-8")
    return {word: " ".join(meaning.split()) for word, meaning in _ENTRY.findall(text)}
