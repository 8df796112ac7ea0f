"""Which source this is, for reports and proofs."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import datalens_service

_CHECKOUT: Final = Path(datalens_service.__file__).parent.parent
_DISTRIBUTION: Final = "datalens-service"


@cache
def source_commit(checkout: Path = _CHECKOUT) -> str:
    """Commit of the checkout this runs from, or of the repository it was installed from (PEP 610).

    Args:
        checkout: Folder that may be a git repository.

    Returns:
        The commit, with `+` if files differ from it; the tag of the release where there is no repository.
    """
    return _of_checkout(checkout) or _of_installation() or f"v{datalens_service.__version__}"


def _of_checkout(folder: Path) -> str | None:
    if not (folder / ".git").exists():
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changed = commit is not None and _git(folder, "status", "--porcelain", "--untracked-files=no") != ""
    return f"{commit}+" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _of_installation() -> str | None:
    try:
        origin = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    commit = origin.get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None
