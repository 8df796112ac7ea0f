"""Tells whether two keys may be in the hands of one person.

A key that was made with another one was shown to whoever holds that, so both are theirs, and so is all that comes of
them. A key that was made on the machine of the service is its owner's alone, and known by the name that was typed.
People who sign in elsewhere are known by their provider, whatever they are called.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from datalens_service.store.access.keys import SINGLE_SIGN_ON_PREFIX
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.tables import ApiKeyRow


@dataclass(frozen=True)
class _Trail:
    """A key and those that it comes of.

    Attributes:
        typed: Names that somebody typed for keys.
        signed_in: Names of people who sign in elsewhere, of whom two may be called alike.
    """

    ids: frozenset[str]
    typed: frozenset[str]
    signed_in: frozenset[str]


def may_be_one_person(session: Session, key_id: str, other_id: str) -> bool:
    """Tell whether one person may hold both keys."""
    first, second = (_follow(session, one) for one in (key_id, other_id))
    named_alike = first.typed & (second.typed | second.signed_in) or first.signed_in & second.typed
    return bool(first.ids & second.ids or named_alike)


def _follow(session: Session, key_id: str) -> _Trail:
    rows = list(_origins(session, key_id))
    signed_in = {row.id for row in rows if row.prefix.startswith(SINGLE_SIGN_ON_PREFIX)}
    return _Trail(
        ids=frozenset(row.id for row in rows),
        typed=frozenset(_plain(row.name) for row in rows if row.id not in signed_in),
        signed_in=frozenset(_plain(row.name) for row in rows if row.id in signed_in),
    )


def _origins(session: Session, key_id: str | None) -> Iterator[ApiKeyRow]:
    """Yield the key, the key that made it, and so on; a key is made once, so this ends."""
    while key_id is not None:
        row = get_or_refuse(session, ApiKeyRow, key_id, "API key")
        yield row
        key_id = row.made_by


def _plain(name: str) -> str:
    """Write a name as people compare them: letter case, spaces and forms of letters do not matter."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
