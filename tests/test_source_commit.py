"""Reports say which source made them."""

import re
import subprocess
from pathlib import Path

import pytest

import datalens_service
from datalens_service.base import source_commit as module
from datalens_service.base.source_commit import source_commit, source_digest
from other_programs import find_program

AUTHOR = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([find_program("git"), "-C", str(folder), *AUTHOR, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    source_commit.cache_clear()
    return tmp_path


def test_a_checkout_has_its_commit(checkout: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", source_commit(checkout))


def test_a_changed_checkout_says_so(checkout: Path) -> None:
    (checkout / "file").write_text("two")
    assert re.fullmatch(r"[0-9a-f]{40}\+", source_commit(checkout))


def test_an_installation_from_a_repository_has_the_commit_that_pip_wrote_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return '{"vcs_info": {"commit_id": "abc1234"}}' if name == "direct_url.json" else None

    monkeypatch.setattr(module, "distribution", lambda _name: Installed())
    assert source_commit(tmp_path / "no checkout") == "abc1234"


def test_without_a_repository_it_is_the_digest_of_the_files_and_no_tag(tmp_path: Path) -> None:
    unknown = source_commit(tmp_path / "nothing")
    assert unknown == f"sha256:{source_digest()}"
    assert datalens_service.__version__ not in unknown


def test_the_digest_follows_every_file_and_no_cache(tmp_path: Path) -> None:
    (tmp_path / "api" / "__pycache__").mkdir(parents=True)
    digests = set()
    for name, content in (("api/a.py", "1"), ("api/a.py", "2"), ("api/b.html.j2", "1"), ("api/c", "")):
        (tmp_path / name).write_text(content)
        digests.add(source_digest(tmp_path))
    assert len(digests) == 4
    (tmp_path / "api" / "__pycache__" / "a.pyc").write_text("x")
    assert source_digest(tmp_path) in digests
