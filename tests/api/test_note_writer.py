"""Notes of calls that end together share a transaction, and each is durable before its answer leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from event_loops import run_alone

from api.security.note_writer import NoteWriter
from datalens_service.errors import NotFound, StoreUnavailable
from datalens_service.store.access import access_log, tenants
from datalens_service.store.access.access_log import Note
from datalens_service.store.database import Database
from datalens_service.store.tables import DEFAULT_TENANT


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Tenant and number of notes of each."""
    written: list[tuple[str, int]] = []
    note_all = access_log.note_all

    def counted(database: Database, tenant_id: str, notes: Sequence[Note]) -> None:
        note_all(database, tenant_id, notes)
        written.append((tenant_id, len(notes)))

    monkeypatch.setattr(access_log, "note_all", counted)
    return written


def actors(database: Database, tenant_id: str = DEFAULT_TENANT) -> list[str]:
    return [entry.actor for entry in access_log.list_entries(database, tenant_id)[0]]


def test_notes_that_gather_share_a_transaction_and_are_durable_when_it_returns(
    database: Database, transactions: list[tuple[str, int]]
) -> None:
    async def call(writer: NoteWriter, actor: str) -> bool:
        await writer.write(DEFAULT_TENANT, Note(actor, "getJobReport", "job_x"))
        return actor in actors(database)

    async def serve() -> list[bool]:
        writer = NoteWriter(database)
        return await asyncio.gather(*(call(writer, f"key_{number}") for number in range(30)))

    assert all(run_alone(serve())), "an answer left before its note was durable"
    assert sum(count for _, count in transactions) == 30
    assert len(transactions) <= 2
    assert actors(database) == [f"key_{number}" for number in range(30)]
    assert access_log.verify(database, DEFAULT_TENANT) == 30


def test_a_note_that_comes_alone_and_the_next_are_written_at_once(
    database: Database, transactions: list[tuple[str, int]]
) -> None:
    async def serve() -> None:
        writer = NoteWriter(database)
        for actor in ("key_a", "key_b"):
            await writer.write(DEFAULT_TENANT, Note(actor, "getJobReport"))

    run_alone(serve())
    assert transactions == [(DEFAULT_TENANT, 1)] * 2


def test_a_journal_that_fails_fails_all_of_its_notes_and_no_other(database: Database) -> None:
    other = tenants.create(database, "elsewhere").id

    async def serve() -> list[Any]:
        writer = NoteWriter(database)
        named = ["ten_unknown", DEFAULT_TENANT, "ten_unknown", other]
        calls = (writer.write(name, Note("key_a", "getJobReport")) for name in named)
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = run_alone(serve())
    assert [type(outcome) for outcome in outcomes] == [NotFound, type(None), NotFound, type(None)]
    assert actors(database) == actors(database, other) == ["key_a"]


def test_a_full_disk_withholds_every_answer_that_gathered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise StoreUnavailable("full")

    monkeypatch.setattr(access_log, "note_all", fail)

    async def serve() -> list[Any]:
        writer = NoteWriter(database)
        calls = (writer.write(DEFAULT_TENANT, Note("key_a", "getJobReport")) for _ in range(3))
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(outcome) for outcome in run_alone(serve())] == [StoreUnavailable] * 3


def test_a_client_that_hangs_up_takes_no_note_along(database: Database) -> None:
    async def serve() -> None:
        writer = NoteWriter(database)
        gone = asyncio.create_task(writer.write(DEFAULT_TENANT, Note("key_gone", "getJobReport")))
        stays = asyncio.create_task(writer.write(DEFAULT_TENANT, Note("key_stays", "getJobReport")))
        await asyncio.sleep(0)
        gone.cancel()
        await stays

    run_alone(serve())
    assert actors(database) == ["key_gone", "key_stays"]
