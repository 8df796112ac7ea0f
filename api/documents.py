"""The files that describe the API, made from the code. What is in git a test compares; `build/` is for releases."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from datalens_service.api.main import create_app
from datalens_service.report.document import SCHEMA_FILE, json_schema

DESCRIPTION_FILE: Final = "build/openapi.json"
SNAPSHOT_FILE: Final = "tests/api/openapi_snapshot.txt"
_PROSE: Final = {"title", "summary", "description", "example"}

Json = dict[str, Any]


def documents() -> dict[str, str]:
    """Contents by path below the root of the repository."""
    described = create_app().openapi()
    return {
        DESCRIPTION_FILE: _json(described),
        SNAPSHOT_FILE: "".join(f"{line}\n" for line in snapshot(described)),
        SCHEMA_FILE: _json(json_schema()),
    }


def snapshot(described: Json) -> Iterator[str]:
    """A line for each operation and each schema: what it is called, and a digest of what programs rely on."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{operation['operationId']} {method.upper()} {path} {_digest(operation)}"
    for name, schema in described["components"]["schemas"].items():
        yield f"{name} {_digest(schema)}"


def _digest(value: Json) -> str:
    return hashlib.sha256(json.dumps(_without_prose(value), sort_keys=True).encode()).hexdigest()[:12]


def _without_prose(value: Any, *, members: bool = False) -> Any:
    """Return a description without its texts and the values of its examples.

    Args:
        members: True if its keys are names of members, which may be those of texts.
    """
    if isinstance(value, list):
        return [_without_prose(one) for one in value]
    if not isinstance(value, dict):
        return value
    if members:
        return {name: _without_prose(one) for name, one in value.items()}
    kept = {name: one for name, one in value.items() if name not in _PROSE}
    return {
        name: list(one) if name == "examples" else _without_prose(one, members=name == "properties")
        for name, one in kept.items()
    }


def _json(content: Json) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them below the current folder."""
    for path, text in documents().items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)


if __name__ == "__main__":
    main()
