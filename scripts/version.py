#!/usr/bin/env python3
"""The version of this source, made of the changelog and of git: each landing has its own.

    scripts/version.py          1.2.0.dev20261130101500+g0123456789ab
    scripts/version.py --tag    the same as the tag of an image, which may have no +
    scripts/version.py --without-commit    1.2.0.dev0, for what follows a checkout from commit to commit

The landing that leaves nothing under *Unreleased* is the release that stands below. Every other one is a development
version of the next minor release, with the time and the name of its commit, and `.changed` where files differ from it.
Where there is no git, as in an archive, the commit is not known. BUILD_VERSION names a version, or a tag,
that is known already.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def read_version(root: Path = ROOT) -> str:
    """Return the version of the source in a folder, as PEP 440 writes it."""
    given = os.environ.get("BUILD_VERSION", "")
    return given.replace("-", "+") or _derive(root)


def _read_changelog(root: Path) -> tuple[str, bool]:
    """Return the last release that the changelog has, and whether a line stands above it, under *Unreleased*."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    before, release, _ = re.split(r"^## (\d+\.\d+\.\d+)\b", text, maxsplit=1, flags=re.MULTILINE)
    return release, re.search(r"^- ", before, flags=re.MULTILINE) is not None


def without_commit(root: Path = ROOT) -> str:
    """Return the version as far as the changelog tells it."""
    release, has_more = _read_changelog(root)
    return _next(release, "0") if has_more else release


def _derive(root: Path) -> str:
    commit = _git(root, "show", "--no-patch", "--format=%ct+g%h", "--abbrev=12", "HEAD")
    if commit is None:
        return without_commit(root)
    release, has_more = _read_changelog(root)
    is_changed = _git(root, "status", "--porcelain", "--untracked-files=no") != ""
    if not (has_more or is_changed) and _git(root, "diff", "--name-only", "HEAD^", "HEAD", "--", "CHANGELOG.md"):
        return release
    return _next(release, f"{commit}.changed" if is_changed else commit)


def _next(release: str, suffix: str) -> str:
    major, minor, _ = release.split(".")
    return f"{major}.{int(minor) + 1}.0.dev{suffix}"


def _git(root: Path, *arguments: str) -> str | None:
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    version = without_commit() if "--without-commit" in sys.argv else read_version()
    print(version.replace("+", "-") if "--tag" in sys.argv else version)
