"""Types docs/walkthrough.md against a real service, and writes the answers below what was typed.

    python -m benchmarks.walkthrough

Tests type the same page; they compare no answers.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks.environment import ROOT, provenance
from tests.docs.commands import FENCE, list_commands, read_blocks, read_commands
from tests.docs.rehearsal import Rehearsal

PAGE = "docs/walkthrough.md"
LINES, COLUMNS = 8, 120


def main() -> None:
    page = ROOT / PAGE
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal(Path(folder), read_commands(PAGE), None, {})
        try:
            answers = iter(type_page(rehearsal))
        finally:
            rehearsal.close()
    text = FENCE.sub(lambda block: cut(next(answers)) if block["language"] == "text" else block[0], page.read_text())
    page.write_text(re.sub(r"^Commit .*\.$", f"Commit {provenance()['commit']}.", text, flags=re.MULTILINE))


def type_page(rehearsal: Rehearsal) -> list[str]:
    """For each block of text on the page, what the block before it answered."""
    answers, printed = [], ""
    for block in read_blocks(PAGE):
        if block.language == "text":
            answers.append(printed)
        else:
            printed = "".join(rehearsal.type(command) for command in list_commands(PAGE, block))
            print(printed, flush=True)
    return answers


def cut(answer: str) -> str:
    """A block with the ends of a long answer."""
    lines = [line[:COLUMNS].rstrip() for line in answer.strip().splitlines()]
    shown = lines if len(lines) <= LINES else [*lines[: LINES // 2], "…", *lines[-LINES // 2 :]]
    return "\n".join(["```text", *shown, "```"])


if __name__ == "__main__":
    main()
