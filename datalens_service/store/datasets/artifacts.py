"""Files that jobs make: `<job>/<digest>/<name>` in `data_dir/artifacts`, or in an object store (`files.py`).

A file is complete in its place before its row is committed, under a path that holds its digest: whatever a crash
leaves behind, a row never points to other bytes. Private files (`releasable=False`) never leave through
`releasable`, and never leave the local disk.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import ColumnElement, bindparam, delete, select
from sqlalchemy.orm import Session

from datalens_service.base.audience import FileAudience
from datalens_service.base.clock import to_minute
from datalens_service.base.errors import InvalidInput, NotFound
from datalens_service.base.fields import copied
from datalens_service.store import removals
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets.files import Files, LocalFiles, files_at
from datalens_service.store.disk import unavailable
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import ledger
from datalens_service.store.removals import RemovalKind
from datalens_service.store.schema.tables import ArtifactRow, JobRow

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST_LENGTH = 16
_PUBLIC = "public"
"""Stands where the id of a job does for its files."""
_BY_NAME = select(ArtifactRow.__table__).where(
    ArtifactRow.job_id == bindparam("job_id"), ArtifactRow.name == bindparam("name")
)


@dataclass(frozen=True)
class Artifact:
    """A stored file.

    Attributes:
        releasable: True if anyone but the owner may get it.
    """

    job_id: str
    name: str
    sha256: str
    size: int
    media_type: str
    releasable: bool
    created_at: datetime
    locate: Callable[[], Path] = field(repr=False, compare=False)

    @property
    def audience(self) -> FileAudience:
        return "anyone" if self.releasable else "owner"

    @property
    def path(self) -> Path:
        """Return the path on this machine; a remote file is fetched at its first use.

        Raises:
            NotFound: The store has lost it.
        """
        return self.locate()


class ArtifactStore:
    """The files of all jobs.

    Args:
        data_dir: Private files go to its folder `artifacts`, all others too, unless there is a URL.
        url: Object store for releasable files, for example s3://bucket/prefix.
    """

    def __init__(self, database: Database, data_dir: Path, url: str = "") -> None:
        self._database = database
        self._root = data_dir / "artifacts"
        self._private = LocalFiles(self._root)
        self._releasable = files_at(url, data_dir)

    def check(self) -> None:
        """Check that files can be reached."""
        self._releasable.check()

    def put(self, lease: Lease, name: str, content: Path | bytes, *, releasable: bool, media_type: str) -> Artifact:
        """Store a file under the lease of its job; the same name replaces what was there.

        Args:
            name: Letters, digits, dot, dash and underscore.
            content: Bytes, or a file to copy.
            releasable: False for everything that depends on private records outside a release.

        Raises:
            InvalidInput: `name` is not usable.
        """
        path, digest, size = self._placed(lease.job_id, _checked(name), content, self._files(releasable))
        row = ArtifactRow(job_id=lease.job_id, name=name, path=path, sha256=digest, size=size, media_type=media_type)
        # A sample grid is replaced while the job trains.
        row.releasable = releasable
        with self._database.transaction() as session:
            _, job = ledger.lock(session, lease.job_id)
            ledger.check_lease(job, lease.token)
            row.created_at = to_minute(read_database_clock(session))
            return self._artifact(session.merge(row))

    def get(self, job_id: str, name: str) -> Artifact:
        """Return a file of a job, private ones included: for the owner."""
        with self._database.connection() as connection:
            row: Any = connection.execute(_BY_NAME, {"job_id": job_id, "name": name}).one_or_none()
        if row is None:
            raise NotFound("There is no such file; owner-only files are deleted with their data set.")
        return self._artifact(row)

    def releasable(self, job_id: str, name: str) -> Artifact:
        """Return a file of a job that anybody may get."""
        artifact = self.get(job_id, name)
        if not artifact.releasable:
            raise NotFound("There is no such file.")
        return artifact

    def list_artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """Return all files of a job by name, private ones included: for the owner."""
        with self._database.session() as session:
            rows = session.scalars(select(ArtifactRow).where(ArtifactRow.job_id == job_id).order_by(ArtifactRow.name))
            return tuple(self._artifact(row) for row in rows)

    def list_releasable(self, job_ids: Iterable[str]) -> tuple[Artifact, ...]:
        """Return the files of some jobs that anybody may get."""
        query = select(ArtifactRow).where(ArtifactRow.job_id.in_(job_ids), ArtifactRow.releasable)
        with self._database.session() as session:
            return tuple(self._artifact(row) for row in session.scalars(query))

    def keep_public(self, name: str, content: bytes) -> str:
        """Store a file that somebody declared public, for whoever names its SHA-256, which is returned."""
        self._placed(_PUBLIC, name, content, self._releasable)
        return hashlib.sha256(content).hexdigest()

    def public(self, name: str, sha256: str) -> Path:
        """Return the path of a file of `keep_public` on this machine."""
        path = self._releasable.path(f"{_PUBLIC}/{sha256[:_DIGEST_LENGTH]}/{name}", sha256)
        if not path.exists():
            raise NotFound("There is no such public file; upload it first.")
        return path

    def remove_files(self, job_id: str) -> None:
        """Remove every file of a job that has ended and that no row names, superseded ones included. Repeatable.

        Raises:
            StoreUnavailable: One could not be removed.
        """
        with self._database.session() as session:
            named = frozenset(session.scalars(select(ArtifactRow.path).where(ArtifactRow.job_id == job_id)))
        self._releasable.remove_all_but(named, job_id)
        self._private.remove_all_but(named, job_id)

    def remove_copies(self) -> None:
        """Remove copies on this machine of files that no row names any more."""
        self._releasable.remove_copies(self._list_named)

    def _list_named(self, digests: Collection[str]) -> frozenset[str]:
        with self._database.session() as session:
            return frozenset(session.scalars(select(ArtifactRow.sha256).where(ArtifactRow.sha256.in_(digests))))

    def _files(self, releasable: bool) -> Files:
        return self._releasable if releasable else self._private

    def _placed(self, job_id: str, name: str, content: Path | bytes, files: Files) -> tuple[str, str, int]:
        """Complete and in its place under its digest: name there, digest, size."""
        try:
            folder = self._root / job_id
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary, digest = _written(folder, content)
            size = temporary.stat().st_size
        except OSError as error:
            raise unavailable(
                error, "The artifact could not be written; free the disk of ⟦DATALENS_DATA_DIR⟧."
            ) from error
        path = f"{job_id}/{digest[:_DIGEST_LENGTH]}/{name}"
        try:
            files.keep(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path, digest, size

    def _artifact(self, row: ArtifactRow) -> Artifact:
        return copied(Artifact, row, locate=partial(self._files(row.releasable).path, row.path, row.sha256))


def forget_private(session: Session, dataset_id: str) -> None:
    """Forget the files of a data set's jobs that are for its owner, and note them to be removed."""
    job_ids = session.scalars(select(JobRow.id).where(JobRow.dataset_id == dataset_id)).all()
    _forget(session, job_ids, ~ArtifactRow.releasable)


def forget_all(session: Session, job_id: str) -> None:
    """Forget all files of a job that has ended, and note them to be removed."""
    _forget(session, [job_id])


def _forget(session: Session, job_ids: Sequence[str], *which: ColumnElement[bool]) -> None:
    for job_id in job_ids:
        session.execute(delete(ArtifactRow).where(ArtifactRow.job_id == job_id, *which))
        removals.note(session, RemovalKind.JOB_FILES, job_id)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput("An artifact's name consists of letters, digits, dot, dash and underscore.")
    return name


def _written(folder: Path, content: Path | bytes) -> tuple[Path, str]:
    """A synced temporary file in `folder` and the SHA-256 of what it holds."""
    descriptor, name = tempfile.mkstemp(prefix=".tmp-", dir=folder)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            _copy(content, file)
            file.flush()
            os.fsync(descriptor)
            file.seek(0)
            return Path(name), hashlib.file_digest(file, "sha256").hexdigest()
    except BaseException:
        Path(name).unlink()
        raise


def _copy(content: Path | bytes, target: BinaryIO) -> None:
    if isinstance(content, bytes):
        target.write(content)
        return
    with content.open("rb") as source:
        shutil.copyfileobj(source, target)
