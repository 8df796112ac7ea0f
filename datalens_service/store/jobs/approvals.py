"""Jobs whose result a second person releases or withholds.

    submitted ──▶ waiting ──┬── release ──▶ released ──┐ withhold
                            │                   ▲      ▼
                            └── withhold ──▶ withheld ─┘ release

The newest decision holds; the audit journal has every one, with its reason. Until one releases it, a result leaves to
nobody, and what second persons look at (report for others, samples) to them alone. Whether it is handed out changes
nothing of what it cost: releases were charged before their noise was drawn, and nothing is refunded.

Two keys may be in the hands of one person. A key that was made with another one was shown to whoever holds that, so
both are theirs, and so is all that comes of them. A key that was made on the machine of the service is its owner's
alone, and known by the name that was typed. People who sign in elsewhere are known by their provider, whatever they are
called.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import Forbidden, StateConflict
from datalens_service.store.access import access_log
from datalens_service.store.access.keys import SINGLE_SIGN_ON_PREFIX, ApiKey
from datalens_service.store.access.roles import Scope
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.released_models import Approval
from datalens_service.store.ledger import ledger
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.service_tables import ReleasedModelRow
from datalens_service.store.schema.tables import ApiKeyRow, JobRow

ACTIONS: Final = {Approval.RELEASED: "releaseJob", Approval.WITHHELD: "withholdJob"}
"""Names of decisions in the audit journal."""

_SENTENCES: Final = {
    Approval.WAITING: "The result of this job waits for a second person, who releases or withholds it.",
    Approval.WITHHELD: "A second person has withheld the result of this job.",
}
_OF_JOB: Final = select(JobRow.approval).where(JobRow.id == bindparam("identifier"))
_OF_MODEL: Final = (
    select(JobRow.approval)
    .join(ReleasedModelRow, ReleasedModelRow.job_id == JobRow.id)
    .where(ReleasedModelRow.id == bindparam("identifier"))
)
_QUERIES: Final = {"job_id": _OF_JOB, "generator_id": _OF_MODEL, "classifier_id": _OF_MODEL, "release_id": _OF_MODEL}
"""Statements that find whether a result is held back, by the parameter of a path that names it."""


def check_released(connection: Connection, ids: dict[str, str]) -> None:
    """Refuse results that wait for a second person, or were withheld.

    Args:
        ids: Objects by the parameters of a path; others than jobs and models are not looked at.

    Raises:
        StateConflict: One of them is held back.
    """
    for name, identifier in ids.items():
        if name in _QUERIES:
            refuse_held(connection.scalar(_QUERIES[name], {"identifier": identifier}))


def refuse_held(approval: str | None) -> None:
    """Refuse a result that is held back.

    Raises:
        StateConflict: It is.
    """
    if approval is not None and approval in _SENTENCES:
        raise StateConflict(_SENTENCES[Approval(approval)])


def may_decide(database: Database, key: ApiKey, job: Job) -> bool:
    """Tell whether whoever holds a key may decide about the result of a job: they do not hold the one it came with."""
    if job.approval is None or job.submitted_by is None or Scope.RELEASES_APPROVE not in key.scopes:
        return False
    with database.session() as session:
        return not may_be_one_person(session, job.submitted_by.id, key.id)


def decide(database: Database, key: ApiKey, job_id: str, decision: Approval, reason: str) -> Job:
    """Release or withhold the result of a job; row and journal tell of it, or nothing happened.

    Raises:
        Forbidden: Whoever holds the key may have submitted the job; the journal notes the attempt.
        StateConflict: The job asked for no approval, has not succeeded, or the decision is there already.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if row.approval is None:
            raise StateConflict("This job was submitted without approval: nobody decides about its result.")
        if row.state != JobState.SUCCEEDED:
            raise StateConflict(f"The job is {row.state}: decide once it has succeeded and its report is complete.")
        if row.approval == decision:
            raise StateConflict(f"The result is {decision} already.")
        is_other_person = row.submitted_by is not None and not may_be_one_person(session, row.submitted_by, key.id)
        if is_other_person:
            row.approval, row.decided_by, row.decision_reason = decision, key.id, reason
            row.decided_at = read_database_clock(session)
        note = {"actor": key.id, "action": ACTIONS[decision], "object_id": job_id, "detail": reason}
        access_log.append(session, row.tenant_id, **note, outcome=200 if is_other_person else 403)
        session.flush()
        decided = Job.from_row(row)
    if not is_other_person:
        raise Forbidden(
            "A second person has to decide. This key submitted the job, or may belong to whoever did: both have one "
            "name, or one person made both. Make keys for others on the machine of the service, or use single sign-on."
        )
    return decided


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
