"""The little Markdown that descriptions in our code have: code in backticks, lists, paragraphs."""

from __future__ import annotations

from markupsafe import Markup, escape


def marked(text: str) -> Markup:
    """Text as HTML; whatever else stands in it stays text."""
    return Markup("").join(_block(block) for block in text.split("\n\n") if block)


def _block(text: str) -> Markup:
    lines = text.split("\n")
    if all(line.startswith("- ") for line in lines):
        items = Markup("").join(Markup("<li>{}</li>").format(_inline(line[2:])) for line in lines)
        return Markup("<ul>{}</ul>").format(items)
    return Markup("<p>{}</p>").format(_inline(text))


def _inline(text: str) -> Markup:
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
