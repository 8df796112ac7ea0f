"""Chooses the next waiting job: by priority, then by share, then by age. Public facts alone decide.

1. The highest priority.
2. The tenant that has the fewest jobs running on this kind of worker, so nobody waits behind all jobs of another.
3. The job that was submitted first; one that was interrupted keeps its time of submission.

Shares are counted when a worker asks. Workers that ask at the same instant see the same counts, so a share can be off
by as many jobs as there are such workers until the next claim.
"""

from typing import TypeVar

from sqlalchemy import ColumnElement, Select, Subquery, func, or_, select, true
from sqlalchemy.orm import aliased

from datalens_service.store.schema.tables import JOB_FORMAT, JobRow

T = TypeVar("T")


def select_waiting(query: Select[T], queue: str | None) -> Select[T]:
    """Jobs that wait for a worker of this kind and version, the next one in front."""
    running = _count_running(queue)
    waiting = query.outerjoin(running, running.c.tenant_id == JobRow.tenant_id)
    waiting = waiting.where(JobRow.state == "queued", JobRow.format <= JOB_FORMAT, _is_in(JobRow, queue))
    share = func.coalesce(running.c.jobs, 0)
    return waiting.order_by(JobRow.priority.desc(), share, JobRow.created_at, JobRow.id)


def _count_running(queue: str | None) -> Subquery:
    """Jobs and audits that workers of this kind run, by tenant; not what a job pays for a figure elsewhere."""
    running = aliased(JobRow)
    query = select(running.tenant_id, func.count().label("jobs"))
    query = query.where(running.state == "running", running.measured_job_id.is_(None), _is_in(running, queue))
    return query.group_by(running.tenant_id).subquery()


def _is_in(job: type[JobRow], queue: str | None) -> ColumnElement[bool]:
    return true() if queue is None else or_(job.queue.is_(None), job.queue == queue)
