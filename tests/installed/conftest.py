"""The wheel of this checkout, in an environment of its own that has the packages of this one."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from repository import ROOT

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it, but of what is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a virtual environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    # Behind its own packages, and without the link to this checkout, which a file beside them makes.
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{SITE_PACKAGES}\n")
    install = [SITE_PACKAGES.parents[2] / "bin" / "uv", "pip", "install", "--offline", "--no-deps", "--quiet"]
    subprocess.run([*install, "--python", folder / "bin" / "python", wheel], check=True)
    for name in ("celery", "uvicorn"):
        script = (SITE_PACKAGES.parents[2] / "bin" / name).read_text()
        (folder / "bin" / name).write_text(f"#!{folder}/bin/python\n{script.partition(chr(10))[2]}")
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of somebody else's, with a package for each name that stands anywhere at the top of this repository."""
    folder = tmp_path / "foreign"
    ours = [path.stem for room in (ROOT, ROOT / "datalens_service") for path in room.iterdir()]
    for name in {name for name in ours if name.isidentifier()} - {"__init__", "__pycache__", "datalens_service"}:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise AssertionError('{name} of the folder was imported')\n")
    assert {"api", "benchmarks", "cli", "migrations", "tests", "workers"} <= {made.name for made in folder.iterdir()}
    return folder
