"""Writes the synchronous client: the asynchronous one without `async` and `await`, formatted.

    python scripts/generate_sync_client.py [FOLDER]

The default FOLDER is `datalens_service/client/_sync`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from unasync import Rule, unasync_files

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "datalens_service" / "client"
SOURCE = CLIENT / "_async"
HEADER = "# Generated from _async by scripts/unasync. Do not edit.\n"
SYNC_NAMES = {
    "_async": "_sync",
    "AsyncAuditOperations": "AuditOperations",
    "AsyncClassifierOperations": "ClassifierOperations",
    "AsyncClient": "Client",
    "AsyncDatasetOperations": "DatasetOperations",
    "AsyncJobHandle": "JobHandle",
    "AsyncJobOperations": "JobOperations",
    "AsyncTransport": "Transport",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aiter_lines": "iter_lines",
    "aread": "read",
    "asyncio": "time",
}


def write_sync_client(folder: Path) -> None:
    """Write the synchronous twin of every asynchronous module into `folder`."""
    rule = Rule(f"{SOURCE}/", f"{folder}/", SYNC_NAMES)
    unasync_files([str(path) for path in sorted(SOURCE.glob("*.py"))], [rule])
    for path in folder.glob("*.py"):
        path.write_text(HEADER + path.read_text(encoding="utf-8"), encoding="utf-8")
    run_ruff("check", "--quiet", "--select=I", "--fix", str(folder))
    run_ruff("format", "--quiet", str(folder))


def run_ruff(*arguments: str) -> None:
    """Run a ruff command with the settings of this repository."""
    command = [sys.executable, "-m", "ruff", *arguments, f"--config={ROOT / 'pyproject.toml'}"]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    write_sync_client(Path(sys.argv[1]) if len(sys.argv) > 1 else CLIENT / "_sync")
