"""The packages of an image: `python requirements.py EXTRA...` prints the requirements of these extras, one per line.

With `--torch-cpu` it prints the pinned versions of torch and torchvision as the index of CPU builds names them instead.
Both read pyproject.toml and requirements.lock of the working directory; the Dockerfile calls it.
"""

import re
import sys
import tomllib
from pathlib import Path

_TORCH = re.compile(r"^(torch|torchvision)==([^\s;]+)", re.MULTILINE)


def requirements(extras: list[str]) -> list[str]:
    """Those of the base install and of these extras of pyproject.toml."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    return project["dependencies"] + [each for name in extras for each in project["optional-dependencies"][name]]


def cpu_builds() -> list[str]:
    """The versions of requirements.lock, with the local version label of a build without CUDA."""
    return [f"{name}=={version}+cpu" for name, version in _TORCH.findall(Path("requirements.lock").read_text())]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print("\n".join(cpu_builds() if arguments == ["--torch-cpu"] else requirements(arguments)))
