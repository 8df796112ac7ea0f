"""The source code of this installation, for reports and proofs."""

import hashlib
import json
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).parents[2]
_DISTRIBUTION: Final = "datalens-service"
_LINKS: Final = ("api", "migrations", "workers")
"""Rooms that are links in a checkout, whose files `rglob` would leave out."""


@cache
def source_commit(checkout: Path = _CHECKOUT) -> str:
    """Return the commit of the checkout this runs from, or of the repository it was installed from (PEP 610).

    Returns:
        The commit, with `+` if files differ from it. Where no commit is known, as in an image that was built without
        one, `sha256:` with the digest of the source files: nothing proves that they are those of a release.
    """
    return _of_checkout(checkout) or _of_installation() or f"sha256:{source_digest()}"


def source_digest(root: Path = _CHECKOUT / "datalens_service") -> str:
    """Hash names and contents of all files of the program below `root`, in the order of their names, by SHA-256."""
    digest = hashlib.sha256()
    files = {path for folder in (root, *(root / name for name in _LINKS)) for path in folder.rglob("*")}
    for path in sorted(path for path in files if path.is_file() and path.suffix != ".pyc"):
        name, content = path.relative_to(root).as_posix().encode(), path.read_bytes()
        digest.update(b"%d %b %d " % (len(name), name, len(content)) + content)
    return digest.hexdigest()


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
