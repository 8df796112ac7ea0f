"""A copy of the product with one file more and its lines in one registry."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ExtendedProduct:
    """The library and its tests of mechanisms, as somebody who adds a part would have them.

    Args:
        folder: Empty; the copy is made here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "static")
        for part in ("datalens_service", "tests/mechanisms", "tests/privacy_gate", "docs/mechanisms"):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def add(self, file: str, content: str) -> None:
        """Add the file; it must be new."""
        path = self._folder / file
        assert not path.exists()
        path.write_text(content)

    def register(self, registry: str, line: str, **unions: str) -> None:
        """Add an import to a registry, and a member to each of its unions by name."""
        path = self._folder / registry
        docstring, separator, code = path.read_text().partition("\n\n")
        code = f"{line}\n{code}"
        for union, member in unions.items():
            assert f"\n{union} = " in code
            code = code.replace(f"\n{union} = ", f"\n{union} = {member} | ", 1)
        path.write_text(docstring + separator + code)

    def run(self, *command: str) -> str:
        """What a Python command prints.

        Raises:
            AssertionError: It failed; the message is all that it said.
        """
        environment = os.environ | {"PYTHONPATH": f"{self._folder}{os.pathsep}{self._folder / 'tests'}"}
        done = subprocess.run(
            [sys.executable, *command], cwd=self._folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
