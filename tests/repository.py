"""The files of this repository, also where it is no checkout: somebody may have unpacked an archive of it."""

import os
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def list_files(root: Path = ROOT) -> list[str]:
    """Paths from the root, sorted: what git knows or would add, else all that `.gitignore` does not name."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = _walk(root)
    return sorted({name for name in names if name and (root / name).is_file()})


def _walk(root: Path) -> list[str]:
    ignored = {name.strip("/") for name in (root / ".gitignore").read_text().splitlines()}
    names = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in ignored and name != ".git"]
        names += [str(Path(folder, name).relative_to(root)) for name in files if f"*{Path(name).suffix}" not in ignored]
    return names
