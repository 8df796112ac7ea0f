"""A package of somebody else on the path, with its metadata, as pip leaves it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from datalens_service.cli.app import app

ROOT = Path(__file__).parents[2]


class Installed:
    """Version 1.2 of a package with one module.

    Args:
        folder: On the path of programs that are run here; a test puts it on its own.
        module: The package has its name, with dashes.
        source: Of the module.
    """

    def __init__(self, folder: Path, module: str, source: str) -> None:
        self._folder = folder
        self._module = module
        (folder / f"{module}.py").write_text(source)
        self._metadata = folder / f"{module}-1.2.dist-info"
        self._metadata.mkdir()
        name = module.replace("_", "-")
        (self._metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")

    def offer(self, group: str, **names: str) -> None:
        """Offer objects of the module as plug-ins of a group."""
        lines = [f"{name} = {self._module}:{found}" for name, found in names.items()]
        with (self._metadata / "entry_points.txt").open("a") as file:
            file.write("\n".join([f"[datalens.{group}]", *lines, ""]))

    def type(self, *command: str, status: int = 0) -> str:
        """Type a command in this process, whose settings of evaluations know no extractor that came after its start."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self._folder)
            patch.syspath_prepend(self._folder)
            patch.delitem(sys.modules, self._module, raising=False)
            ended = CliRunner().invoke(app, command)
        assert ended.exit_code == status, ended.output
        return ended.stdout

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run Python where the package is installed."""
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{self._folder}"}
        arguments = [sys.executable, *command]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, cwd=self._folder)
