"""Write the table of README.md from benchmarks/results/utility-*.json: `python -m benchmarks.table`.

With `--check` nothing is written, and the exit code says whether the table is what the results say.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- table: python -m benchmarks.table -->\n", "<!-- end of table -->"
COLUMNS = ("data set", "method", "ε", "accuracy", "seeds", "images × epochs", "seconds to train", "commit")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"


def rows() -> list[dict[str, Any]]:
    """All rows of all results, each with its commit."""
    found = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("utility-*.json")):
        result = json.loads(path.read_text())
        found += [{**row, "commit": result["commit"]} for row in result["rows"]]
    return found


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    spread = f" ± {row['accuracy_std']:.1f}" if row["accuracy_std"] is not None else ""
    method = " ".join([row["method"], *row["settings"]])
    # Real images are the ceiling's; floor A has no images at all.
    shown = f"{row['synthetic_images']:,} × {row['epochs']}" if row["seconds"] is not None else ""
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
    return (
        f"| {row['dataset']} | {method} | {row['epsilon']:g} | {row['accuracy_mean']:.1f}{spread} "
        f"| {row['seeds']} | {shown} | {seconds} | {row['commit']} |\n"
    )


def main() -> None:
    """Replace what stands between the markers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    written = before + BEGIN + HEAD + "".join(line(row) for row in rows()) + END + after
    if options.check:
        sys.exit(written != text)
    readme.write_text(written)


if __name__ == "__main__":
    main()
