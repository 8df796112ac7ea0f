"""How long a request waits in all, and a loop each time: by a clock of the test, or by what the server keeps."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from datalens_service.base.errors import StoreUnavailable
from datalens_service.store import patience
from datalens_service.store.database import Database
from datalens_service.store.patience import impatient, impatient_in_all, is_impatient, seconds_left, waiting, working

HELD = 0.3
"""Seconds for which something is kept from who waits for it."""
LONG = 600.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def wait(now: list[float], seconds: float) -> None:
    with waiting():
        now[0] += seconds


def test_all_waits_of_a_request_share_its_patience_and_work_takes_none(now: list[float]) -> None:
    with impatient_in_all():
        wait(now, 3)
        # Bytes that arrive, images that are drawn.
        now[0] += 1000
        assert seconds_left(LONG) == 2
        copy_context().run(wait, now, 1)
        assert seconds_left(LONG) == 1
        with working():
            wait(now, 1000)
        assert seconds_left(LONG) == 1
        wait(now, 30)
        assert (seconds_left(LONG), is_impatient()) == (0, True)
        with impatient():
            assert seconds_left(LONG) == patience.SECONDS
        assert seconds_left(LONG) == 0


def test_a_loop_has_its_patience_each_time_and_a_job_waits(now: list[float]) -> None:
    with impatient():
        for _ in range(3):
            wait(now, 4)
            assert seconds_left(LONG) == patience.SECONDS
    wait(now, 4)
    assert (seconds_left(LONG), is_impatient()) == (LONG, False)


def test_waits_that_end_in_an_error_count(now: list[float]) -> None:
    with impatient_in_all(10):
        with suppress(KeyError), waiting():
            now[0] += 4
            raise KeyError
        assert seconds_left(LONG) == 6


def test_who_waited_for_the_writer_of_sqlite_waits_no_second_time(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", HELD)
    left = []

    def write_twice() -> None:
        with impatient_in_all():
            for _ in range(2):
                with pytest.raises(StoreUnavailable), sqlite_database.transaction():
                    raise AssertionError
                left.append(seconds_left(LONG))

    with ThreadPoolExecutor(1) as threads, sqlite_database.transaction():
        threads.submit(write_twice).result(LONG)
    assert left == [0, 0]


class Gate:
    """The connections of a process, of which none is free before `HELD` seconds of waiting."""

    def __init__(self, free: threading.Semaphore) -> None:
        self._free = free
        self.release = free.release

    def acquire(self, timeout: float) -> bool:
        assert not self._free.acquire(timeout=HELD)
        self._free.release()
        return self._free.acquire(timeout=timeout)


@pytest.mark.postgres
def test_who_waited_for_a_connection_waits_the_less_for_a_lock(postgresql_database: Database) -> None:
    database = Database(postgresql_database.url, connections=1)
    server: Any = database._server
    try:
        with database.session() as session:
            session.execute(text("SELECT 1"))
        server._free.acquire()
        server._free = Gate(server._free)
        with impatient_in_all(LONG), database.session() as session:
            assert read_bound(session) <= LONG - HELD
    finally:
        database.dispose()


@pytest.mark.postgres
def test_who_waited_for_a_statement_waits_the_less_for_the_next_one(postgresql_database: Database) -> None:
    with impatient_in_all(LONG), postgresql_database.session() as session:
        assert read_bound(session) <= LONG
        session.execute(text("SELECT pg_sleep(1)"))
        assert read_bound(session) <= LONG - 1
    with impatient_in_all(0), postgresql_database.session() as session:
        # What need not be waited for is given to who has no patience left; 0 would be no bound at all.
        assert 0 < read_bound(session) < 1
    with impatient(), postgresql_database.session() as session:
        session.execute(text("SELECT pg_sleep(1)"))
        assert read_bound(session) == patience.SECONDS


def read_bound(session: Any) -> float:
    """Seconds that the server lets this transaction wait for a lock."""
    return float(session.scalar(text("SELECT setting FROM pg_settings WHERE name = 'lock_timeout'"))) / 1000
