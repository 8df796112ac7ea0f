"""The files that describe the API, made from the code: `scripts/openapi` writes them, a test compares them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from api.main import create_app
from api.problems.problem_types import as_markdown
from datalens_service.evaluation.report.document import SCHEMA_FILE, json_schema


def documents() -> dict[str, str]:
    """Contents by path below the root of the repository."""
    return {
        "openapi.json": _json(create_app().openapi()),
        "docs/problems.md": as_markdown(),
        SCHEMA_FILE: _json(json_schema()),
    }


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them into the folder named on the command line."""
    for path, text in documents().items():
        Path(sys.argv[1], path).write_text(text)


if __name__ == "__main__":
    main()
