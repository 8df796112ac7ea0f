"""A production stack that begins with processes of an earlier version, from the history of this checkout."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from deployments.stack import CeleryStack

VERSION_1 = "3508071d4a2136b631d623790562f78613fecd03"
BEFORE = "0d254e31a2bf21d461357b5cb79371c97ecdb641"
"""The version before, with which this one works: that of the last release, 1.1.0."""

_REPOSITORY = Path(__file__).parents[2]


class OlderStack(CeleryStack):
    """Begins with processes of an earlier version, which make the database.

    Args:
        folder: Of the deployment.
        source: Of that version.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        super().__init__(folder)
        self._source = source
        self.empty_database()

    def serve(self) -> None:
        self.api = self.start_older(*self.api_command())
        self.wait(self.ready)
        command = [sys.executable, "-m", "datalens_service.cli", "keys", "create", "--name", "older", "--json"]
        environment = self.environment | {"PYTHONPATH": str(self._source)}
        made = subprocess.run(command, cwd=self._source, env=environment, capture_output=True, check=True)
        self.key = json.loads(made.stdout)["api_key"]
        self.workers.append(self.start_older(*self.worker_command()))

    def read_job_format(self) -> int:
        """The newest format of jobs that a worker of that version takes."""
        tables = (self._source / "datalens_service" / "store" / "schema" / "tables.py").read_text()
        return int(re.findall(r"^JOB_FORMAT: Final = (\d+)$", tables, re.MULTILINE)[0])

    def start_older(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A module of that version; in version 1.0.0, rooms had names of their own."""
        if not (self._source / "datalens_service" / "workers").exists():
            rooms = re.compile(r"^datalens_service\.(?=(api|workers|migrations)\b)")
            arguments = tuple(rooms.sub("", word) for word in arguments)
        return self.start("-m", *arguments, cwd=self._source, PYTHONPATH=str(self._source))


def unpack(commit: str, folder: Path) -> bool:
    """Write the source of a commit into a folder; False where the history does not reach back to it."""
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(_REPOSITORY), "archive", "--output", str(archive), commit]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return False
    folder.mkdir()
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return True
