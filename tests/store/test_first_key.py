"""The key that the first start makes: one, known to somebody, whatever starts at the same time."""

from collections.abc import Callable

import pytest

from datalens_service.errors import InsufficientStorage
from datalens_service.store.access import keys
from datalens_service.store.database import Database

from .test_concurrency import together


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


def test_a_service_with_a_key_gets_no_other(database: Database) -> None:
    keys.create(database, "somebody")
    assert keys.create_first(database, "first", lambda _: None) is None
    assert len(keys.list_keys(database)) == 1
