"""scripts/version.py: a release is one landing, and every other landing has a version of its own."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from other_programs import find_program
from repository import ROOT, list_files

AUTHOR = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
RELEASED = "## Unreleased\n\n## 1.1.0 – 2026-11-29\n- Old.\n"
CHANGED = RELEASED.replace("## 1.1.0", "### Added\n- New.\n\n## 1.1.0")


def git(folder: Path, *arguments: str) -> str:
    command = [find_program("git"), "-C", str(folder), *AUTHOR, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def land(folder: Path, changelog: str) -> str:
    """Commit something, and a changelog."""
    (folder / "CHANGELOG.md").write_text(changelog)
    with (folder / "file").open("a") as file:
        file.write("more\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "more")
    return git(folder, "rev-parse", "--short=12", "HEAD")


def version_of(folder: Path, *options: str, **variables: str) -> str:
    (folder / "scripts").mkdir(exist_ok=True)
    script = folder / "scripts" / "version.py"
    script.write_text((ROOT / "scripts" / "version.py").read_text())
    command = [sys.executable, "-S", str(script), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    land(tmp_path, CHANGED.replace("1.1.0", "1.0.0"))
    return tmp_path


def test_the_landing_that_empties_unreleased_is_the_release(checkout: Path) -> None:
    land(checkout, RELEASED)
    assert version_of(checkout) == version_of(checkout, "--tag") == "1.1.0"


@pytest.mark.parametrize("changelog", [RELEASED, CHANGED])
def test_every_other_landing_names_its_commit_and_comes_before_the_next_release(checkout: Path, changelog: str) -> None:
    land(checkout, RELEASED)
    commits = [land(checkout, changelog), land(checkout, changelog)]
    # The first one of them changes the changelog, or not.
    found = version_of(checkout)
    assert found.endswith(f"+g{commits[1]}")
    assert Version("1.1.0") < Version(found) < Version("1.2.0")
    assert version_of(checkout, "--tag") == found.replace("+", "-")
    git(checkout, "checkout", "--quiet", commits[0])
    assert version_of(checkout) not in (found, "1.1.0")


def test_changed_files_are_no_release(checkout: Path) -> None:
    land(checkout, RELEASED)
    (checkout / "file").write_text("another")
    assert version_of(checkout).endswith(".changed")
    assert Version(version_of(checkout)).is_devrelease


def test_a_commit_without_the_one_before_is_no_release(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commit = land(checkout, RELEASED)
    shallow = tmp_path_factory.mktemp("shallow")
    git(shallow, "clone", "--quiet", "--depth", "1", f"file://{checkout}", ".")
    assert version_of(shallow).endswith(f"+g{commit}")


def test_without_git_no_commit_is_named(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(CHANGED)
    assert version_of(tmp_path) == version_of(tmp_path, "--without-commit") == "1.2.0.dev0"
    (tmp_path / "CHANGELOG.md").write_text(RELEASED)
    assert version_of(tmp_path) == "1.1.0"


@pytest.mark.parametrize("given", ["1.2.0.dev3+gabc.changed", "1.2.0.dev3-gabc.changed"])
def test_a_build_without_git_may_be_told(tmp_path: Path, given: str) -> None:
    assert version_of(tmp_path, BUILD_VERSION=given) == "1.2.0.dev3+gabc.changed"


def test_kubernetes_names_the_images_of_the_last_release() -> None:
    release = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    bases = [(ROOT / name).read_text() for name in list_files() if name.endswith("kustomization.yaml")]
    assert {tag for base in bases for tag in re.findall(r"^\s*newTag: (\S+)", base, flags=re.MULTILINE)} == {release}


def test_a_description_on_an_index_leads_to_the_files_of_its_version() -> None:
    location = ROOT / "scripts" / "long_description.py"
    spec = importlib.util.spec_from_file_location("long_description", location)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "[a](docs/a.txt#b) ![c](d.png) [e](https://e.example)\n```\n[f](g)\n```\n"
    there = "https://forge.example/us/it"
    links = f"[a]({there}/blob/v1.1.0/docs/a.txt#b) ![c]({there}/raw/v1.1.0/d.png)"
    code = "[e](https://e.example)\n```\n[f](g)\n```\n"
    assert module.rewrite_links(text, f"{there}/", "v1.1.0") == f"{links} {code}"
    assert module.rewrite_links(text, None, "v1.1.0") == f"a c {code}"
