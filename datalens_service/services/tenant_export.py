"""Everything that a tenant owns as one tar archive, written as it is read: nothing is held in memory but one row.

README.txt              this list
tenant.json             its name, quotas, retention, keys and webhooks, without any secret
journal.jsonl           its audit journal
accounts/ID.jsonl       the journal of each budget
datasets/ID/            dataset.json, the report on its upload, and its records as they are stored (NPY)
jobs/ID/                job.json, events.jsonl, and files/ with all files, those for the owner alone included
generators/ID.…         imported generators and their cards
SHA256SUMS              of every other file, for `sha256sum -c`; it is last, so an archive without it is cut off
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.settings import Settings
from datalens_service.services import generator_import
from datalens_service.store.access.tenants import Tenant
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.schema.service_tables import (
    AuditEntryRow,
    JobEventRow,
    ReleasedModelRow,
    RetentionRow,
    TenantQuotaRow,
    WebhookRow,
)
from datalens_service.store.schema.tables import (
    ApiKeyRow,
    DatasetRow,
    IntakeRow,
    JobRow,
    LedgerEntryRow,
    PrivacyAuditRow,
)

PRIVATE_READS = ("reading the upload", "attacks")

SUMS: Final = "SHA256SUMS"
_SECRETS: Final = frozenset({"sha256", "secret", "partition_key", "records_path", "prefix"})
"""Columns that open something, or that name a place on this machine."""
_ROWS_AT_ONCE: Final = 1000


def export_tenant(
    database: Database, artifacts: ArtifactStore, settings: Settings, tenant: Tenant, out: IO[bytes]
) -> dict[str, str]:
    """Write the archive of a tenant; the SHA-256 of each file by its name.

    Args:
        out: Written from beginning to end; it need not be a file that can be sought in.

    Raises:
        StoreUnavailable: A file or the database cannot be read.
        FileDamaged: Records in the object store are not what was put there.
    """
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        writer = _Archive(archive, int(read_clock(database).timestamp()))
        writer.add_text("README.txt", (__doc__ or "").partition("\n\n")[2])
        with database.session() as session:
            writer.add_text("tenant.json", _describe_tenant(session, tenant))
            journal = select(AuditEntryRow).where(AuditEntryRow.tenant_id == tenant.id).order_by(AuditEntryRow.seq)
            writer.add_lines("journal.jsonl", _read_lines(session, journal))
            own = select(DatasetRow).where(DatasetRow.tenant_id == tenant.id).order_by(DatasetRow.created_at)
            datasets = session.scalars(own).all()
            for account_id in sorted({row.account_id for row in datasets}):
                entries = select(LedgerEntryRow).where(LedgerEntryRow.account_id == account_id)
                lines = _read_lines(session, entries.order_by(LedgerEntryRow.seq))
                writer.add_lines(f"accounts/{account_id}.jsonl", lines)
        for row in datasets:
            _add_dataset(writer, database, settings, row)
        for job_id in _list_ids(database, JobRow, tenant.id):
            _add_job(writer, database, artifacts, job_id)
        for generator_id in _list_ids(database, ReleasedModelRow, tenant.id, ReleasedModelRow.job_id.is_(None)):
            for path in (
                generator_import.locate_file(settings.data_dir, generator_id),
                generator_import.locate_card(settings.data_dir, generator_id),
            ):
                writer.add_file(f"generators/{path.name}", path)
        writer.close()
        return writer.sums


class _Archive:
    """A tar archive that remembers the SHA-256 of what it was given."""

    def __init__(self, archive: tarfile.TarFile, written_at: int) -> None:
        self._archive, self._written_at = archive, written_at
        self.sums: dict[str, str] = {}

    def add_text(self, name: str, text: str) -> None:
        content = text.encode()
        self._add(name, io.BytesIO(content), len(content))

    def add_file(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            self._add(name, file, path.stat().st_size)

    def add_lines(self, name: str, lines: Iterable[str]) -> None:
        """Add a file whose length is known once it has been written elsewhere."""
        with tempfile.TemporaryFile() as spool:
            for line in lines:
                spool.write(f"{line}\n".encode())
            length = spool.tell()
            spool.seek(0)
            self._add(name, spool, length)

    def close(self) -> None:
        """Add the sums of all files, as the last one."""
        sums = dict(self.sums)
        self.add_text(SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))
        self.sums = sums

    def _add(self, name: str, content: IO[bytes], length: int) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime, entry.mode = length, self._written_at, 0o600
        hashed = _Hashing(content)
        self._archive.addfile(entry, hashed)
        self.sums[name] = hashed.digest.hexdigest()


class _Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, length: int = -1) -> bytes:
        piece = self._file.read(length)
        self.digest.update(piece)
        return piece


def _describe_tenant(session: Session, tenant: Tenant) -> str:
    def rows(row: type[Any]) -> list[dict[str, Any]]:
        query = select(row).where(row.tenant_id == tenant.id)
        return [_members(one) for one in session.scalars(query)]

    described = {
        "id": tenant.id,
        "name": tenant.name,
        "created_at": tenant.created_at,
        "keys": rows(ApiKeyRow),
        "webhooks": rows(WebhookRow),
        "quotas": rows(TenantQuotaRow),
        "retention": rows(RetentionRow),
    }
    return _to_json(described, indent=2)


def _add_dataset(writer: _Archive, database: Database, settings: Settings, row: DatasetRow) -> None:
    place = f"datasets/{row.id}"
    writer.add_text(f"{place}/dataset.json", _to_json(_members(row), indent=2))
    with database.session() as session:
        upload = session.get(IntakeRow, row.id)
        if upload is not None and upload.report is not None:
            writer.add_text(f"{place}/upload.json", _to_json(_members(upload), indent=2))
    if row.state == "ready":
        with tempfile.TemporaryDirectory(dir=settings.data_dir, prefix=".export-") as folder:
            records = RecordStore(settings).fetch(row.records_path, Path(folder) / "records")
            for path in sorted(records.iterdir()):
                writer.add_file(f"{place}/records/{path.name}", path)


def _add_job(writer: _Archive, database: Database, artifacts: ArtifactStore, job_id: str) -> None:
    with database.session() as session:
        row = session.get_one(JobRow, job_id)
        writer.add_text(f"jobs/{job_id}/job.json", _to_json(_members(row), indent=2))
        found = session.get(PrivacyAuditRow, job_id)
        if found is not None and found.result is not None:
            writer.add_text(f"jobs/{job_id}/findings.json", _to_json(found.result, indent=2))
        events = select(JobEventRow).where(JobEventRow.job_id == job_id).order_by(JobEventRow.seq)
        writer.add_lines(f"jobs/{job_id}/events.jsonl", _read_lines(session, events))
    for file in artifacts.list_artifacts(job_id):
        writer.add_file(f"jobs/{job_id}/files/{file.name}", file.path)


def _list_ids(database: Database, row: type[Any], tenant_id: str, *which: Any) -> list[str]:
    query = select(row.id).where(row.tenant_id == tenant_id, *which).order_by(row.created_at, row.id)
    with database.session() as session:
        return list(session.scalars(query))


def _read_lines(session: Session, query: Any) -> Iterator[str]:
    for row in session.scalars(query.execution_options(yield_per=_ROWS_AT_ONCE)):
        yield _to_json(_members(row))


def _members(row: Any) -> dict[str, Any]:
    columns = (column for column in row.__table__.columns if column.name not in _SECRETS)
    return {column.name: getattr(row, column.key) for column in columns}


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return bytes(value).hex()
