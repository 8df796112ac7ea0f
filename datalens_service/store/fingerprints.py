"""Which records were ever uploaded here: keyed hashes that tie each record to the one account that pays for it.

A fingerprint is HMAC-SHA256 of the decoded pixels and their shape, cut to 128 bits, under a key of this
installation. Labels, order, file names and the file format do not enter, so a relabelled, reordered or
re-encoded (without loss) upload is recognised. A record with one changed pixel is another record: near
duplicates are not covered (docs/decisions/0003-one-account-per-content.md).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from itertools import islice

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from datalens_service.data.dataset import Images
from datalens_service.store.tables import InstallationRow, RecordFingerprintRow

_LENGTH = 16
_PORTION = 1000


def fingerprints(key: bytes, images: Images) -> frozenset[bytes]:
    """Fingerprints of all records.

    Args:
        key: Of the installation.
        images: uint8 (n, height, width, channels).
    """
    shape = ",".join(map(str, images.shape[1:])).encode()
    keyed = hmac.new(key, shape + b"\0", hashlib.sha256)
    return frozenset(_fingerprint(keyed, image.tobytes()) for image in images)


def installation_key(session: Session, *, lock: bool) -> bytes:
    """The key of this installation; `lock` also makes uploads take turns, so that none overlooks another."""
    query = select(InstallationRow)
    row = session.scalars(query.with_for_update() if lock else query).one()
    return row.fingerprint_key


def known_records(session: Session, prints: frozenset[bytes]) -> dict[bytes, str]:
    """Fingerprints among `prints` that an account knows, with the id of that account."""
    known: dict[bytes, str] = {}
    for portion in _portions(sorted(prints)):
        query = select(RecordFingerprintRow).where(RecordFingerprintRow.fingerprint.in_(portion))
        known.update((row.fingerprint, row.account_id) for row in session.scalars(query))
    return known


def remember(session: Session, prints: frozenset[bytes], account_id: str) -> None:
    """Tie records that no account knows yet to `account_id`."""
    for portion in _portions(sorted(prints)):
        rows = [{"fingerprint": fingerprint, "account_id": account_id} for fingerprint in portion]
        session.execute(insert(RecordFingerprintRow), rows)


def _fingerprint(keyed: hmac.HMAC, pixels: bytes) -> bytes:
    digest = keyed.copy()
    digest.update(pixels)
    return digest.digest()[:_LENGTH]


def _portions(items: Iterable[bytes]) -> Iterable[Sequence[bytes]]:
    iterator = iter(items)
    while portion := list(islice(iterator, _PORTION)):
        yield portion
