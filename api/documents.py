"""The files that describe the API, made from the code: `scripts/openapi` writes them, a test compares them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api.catalogue import as_markdown
from api.main import create_app


def documents() -> dict[str, str]:
    """Contents by path below the root of the repository."""
    description = json.dumps(create_app().openapi(), indent=2, ensure_ascii=False)
    return {"openapi.json": description + "\n", "docs/problems.md": as_markdown()}


def main() -> None:
    """Write them into the folder named on the command line."""
    for path, text in documents().items():
        Path(sys.argv[1], path).write_text(text)


if __name__ == "__main__":
    main()
