"""The key that the first start makes: one, known to somebody, whatever starts at the same time."""

import re
from collections.abc import Callable

import pytest
from sqlalchemy import select

from datalens_service.base.errors import InsufficientStorage, NotFound, Unauthorized
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import ApiKeyRow

from .test_concurrency import together


def verified(database: Database, plain: str) -> keys.ApiKey:
    with database.connection() as connection:
        return keys.verify(connection, plain)


def test_a_key_is_recognised(database: Database) -> None:
    key, plain = keys.create(database, "laptop")
    assert verified(database, plain) == key
    assert key.name == "laptop"


def test_a_key_is_long_random_and_carries_a_checksum(database: Database) -> None:
    _, first = keys.create(database, "a")
    _, second = keys.create(database, "b")
    assert re.fullmatch(r"dlk_[0-9A-Za-z]{36}_[0-9a-f]{8}", first)
    assert first != second


def test_the_database_holds_no_usable_key(database: Database) -> None:
    _, plain = keys.create(database, "laptop")
    with database.session() as session:
        row = session.scalars(select(ApiKeyRow)).one()
    kept = {name: str(getattr(row, name)) for name in ApiKeyRow.__table__.columns.keys()}  # noqa: SIM118
    secret = plain[12:40]
    assert not [name for name, value in kept.items() if secret in value or value in ("", plain)]
    assert plain.startswith(f"dlk_{row.prefix}")


def test_every_changed_character_is_refused(database: Database) -> None:
    _, plain = keys.create(database, "laptop")
    for position, character in enumerate(plain):
        other = "0" if character != "0" else "1"
        with pytest.raises(Unauthorized):
            verified(database, plain[:position] + other + plain[position + 1 :])


def test_a_well_formed_key_with_a_known_prefix_is_refused(database: Database) -> None:
    _, plain = keys.create(database, "laptop")
    body = plain[4:12] + "0" * 28
    with pytest.raises(Unauthorized, match="unknown or was revoked"):
        verified(database, f"dlk_{body}_{keys._checksum(body)}")


@pytest.mark.parametrize("plain", ["", "dlk_", "Bearer x", "dlk_" + "a" * 36 + "_00000000", "ä" * 49])
def test_what_is_no_key_is_refused(database: Database, plain: str) -> None:
    with pytest.raises(Unauthorized, match="not an API key"):
        verified(database, plain)


def test_a_revoked_key_is_refused_and_stays_listed(database: Database) -> None:
    key, plain = keys.create(database, "laptop")
    other, other_plain = keys.create(database, "server")
    revoked = keys.revoke(database, key.id)
    assert revoked.revoked_at is not None
    with pytest.raises(Unauthorized):
        verified(database, plain)
    assert verified(database, other_plain) == other
    assert keys.list_keys(database) == (revoked, other)
    assert keys.revoke(database, key.id) == revoked


def test_only_usable_keys_count(database: Database) -> None:
    key, _ = keys.create(database, "laptop")
    assert keys.create_first(database, "first", print) is None
    keys.revoke(database, key.id)
    assert keys.create_first(database, "first", print) is not None


def test_an_unknown_key_cannot_be_revoked(database: Database) -> None:
    with pytest.raises(NotFound):
        keys.revoke(database, "key_of_nobody")


@pytest.mark.both_databases
def test_replicas_that_start_at_once_make_one_key(database: Database, reopen: Callable[[], Database]) -> None:
    kept: list[str] = []
    replicas = [database, reopen(), reopen()]
    made = together([lambda each=each: keys.create_first(each, "first", kept.append) for each in replicas])
    assert [plain for plain in made if plain is not None] == kept
    assert len(kept) == 1
    [key] = keys.list_keys(database)
    with database.connection() as connection:
        assert keys.verify(connection, kept[0]).id == key.id


def test_there_is_no_key_that_nobody_knows(database: Database) -> None:
    def no_room(_secret: str) -> None:
        raise InsufficientStorage("The disk of data_dir is full.")

    with pytest.raises(InsufficientStorage):
        keys.create_first(database, "first", no_room)
    assert keys.list_keys(database) == ()
