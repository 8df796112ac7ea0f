"""Recognises records that were uploaded before: keyed hashes tie each record to the one account that pays for it.

A fingerprint is HMAC-SHA256 of the decoded pixels and their shape, cut to 128 bits, under a key of this
installation. Labels, order, file names and the file format do not enter, so a relabelled, reordered or
re-encoded (without loss) upload is recognised. A record with one changed pixel is another record: near
duplicates are not covered (docs/decisions/0003-one-account-per-content.md).

Beside it stands a keyed hash of the unit that the record came with, if units were declared: a record that comes
back must belong to the same unit, or budgets counted per unit would not add up (decision 0004).
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from datalens_service.data.dataset import Images, UnitIds
from datalens_service.store.schema.tables import DEFAULT_TENANT

_LENGTH = 16
# Many go with a statement: a driver that is given records one by one lets other threads of this process go first before
# each, and on SQLite nobody else can write meanwhile. Three values each are within what both databases take.
_BATCH = 10_000
_SELECT = "SELECT fingerprint, account_id, unit_print FROM record_fingerprints"
_INSERT = "INSERT INTO record_fingerprints (fingerprint, account_id, unit_print)"


class KnownRecord(NamedTuple):
    """The stored facts about a record."""

    account_id: str
    unit_print: bytes | None


def fingerprints(key: bytes, images: Images, unit_ids: UnitIds | None = None) -> dict[bytes, bytes | None]:
    """Fingerprint of every record, with that of its unit; None where a record is a unit of its own.

    Args:
        unit_ids: int64 (n,), identity of each record's unit; of equal records in several units one unit is taken.
    """
    shape = ",".join(map(str, images.shape[1:])).encode()
    keyed = hmac.new(key, shape + b"\0", hashlib.sha256)
    # Rows of a plain array: those of a mapped file cost as much as their hash.
    records = (_fingerprint(keyed, image.tobytes()) for image in np.asarray(images))
    if unit_ids is None:
        return dict.fromkeys(records)
    keyed_units = hmac.new(key, b"unit\0", hashlib.sha256)
    unit_prints: dict[bytes, bytes] = {}
    for record, unit in zip(records, unit_ids.tolist(), strict=True):
        unit_print = _fingerprint(keyed_units, unit.to_bytes(8, "big"))
        unit_prints[record] = min(unit_print, unit_prints.get(record, unit_print))
    return dict(unit_prints)


def tenant_key(key: bytes, tenant_id: str) -> bytes:
    """The key of a tenant's fingerprints, out of that of the installation.

    Each tenant has its own: with a common one, an upload would tell whether somebody else has the same record. The
    first tenant has the installation's, as its records were known before there were others.
    """
    if tenant_id == DEFAULT_TENANT:
        return key
    return hmac.digest(key, b"tenant\0" + tenant_id.encode(), "sha256")


def known_records(session: Session, prints: Collection[bytes]) -> dict[bytes, KnownRecord]:
    """Fingerprints among `prints` that an account knows, with what is kept of them. What is known stays so for good."""
    known: dict[bytes, KnownRecord] = {}
    connection = session.connection()
    for batch in _batches(sorted(prints)):
        marks = ", ".join([_mark(connection)] * len(batch))
        rows = connection.exec_driver_sql(f"{_SELECT} WHERE fingerprint IN ({marks})", tuple(batch))
        known.update((row.fingerprint, KnownRecord(row.account_id, row.unit_print)) for row in rows)
    return known


def remember(session: Session, prints: Mapping[bytes, bytes | None], account_id: str) -> None:
    """Tie records that no account knows yet, and the units they came with, to `account_id`."""
    connection = session.connection()
    for batch in _batches(sorted(prints)):
        row = f"({', '.join([_mark(connection)] * 3)})"
        values = tuple(value for item in batch for value in (item, account_id, prints[item]))
        connection.exec_driver_sql(f"{_INSERT} VALUES {', '.join([row] * len(batch))}", values)


def _mark(connection: Connection) -> str:
    return "?" if connection.dialect.name == "sqlite" else "%s"


def _fingerprint(keyed: hmac.HMAC, content: bytes) -> bytes:
    digest = keyed.copy()
    digest.update(content)
    return digest.digest()[:_LENGTH]


def _batches(items: Iterable[bytes]) -> Iterable[Sequence[bytes]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
