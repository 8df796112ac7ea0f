"""The submitters of the jobs that a journal names. For the owner alone."""

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.proof.spenders import Actor, Spender
from datalens_service.store.schema.tables import ApiKeyRow, JobRow

_AT_ONCE = 500
"""Fewer than the parameters that a statement may have."""


def read_spenders(session: Session, named: Iterable[str | None]) -> tuple[Spender, ...]:
    """Return the submitter of each job that entries name, in their order.

    Args:
        named: The job of each entry; None of one that is about no job.
    """
    job_ids = [job_id for job_id in dict.fromkeys(named) if job_id is not None]
    query = select(JobRow.id, JobRow.submitted_by, ApiKeyRow.name).outerjoin(
        ApiKeyRow, ApiKeyRow.id == JobRow.submitted_by
    )
    found: dict[str, Actor] = {}
    for start in range(0, len(job_ids), _AT_ONCE):
        rows = session.execute(query.where(JobRow.id.in_(job_ids[start : start + _AT_ONCE])))
        found |= {job_id: Actor(id=actor, name=name) for job_id, actor, name in rows if actor is not None}
    return tuple(Spender(job_id=job_id, submitted_by=found.get(job_id)) for job_id in job_ids)
