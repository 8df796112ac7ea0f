"""Columns of a job mean what they say: its price, its plan, and the kind of the model that it makes."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_CLASSIFIERS = ("dp_sgd", "scattering")
"""Methods that make one; all others of the product make generators."""
_JOBS = sa.table("jobs", sa.column("id"), sa.column("spec", sa.JSON()), sa.column("is_audit"), sa.column("result"))
_RELEASED = sa.table("generators", sa.column("job_id"), sa.column("kind"))


def upgrade() -> None:
    """Take the model of a plug-in's job for a generator until it is released, when its kind is known."""
    op.execute("ALTER TABLE jobs RENAME COLUMN plan TO price")
    op.execute("ALTER TABLE jobs RENAME COLUMN release_plan TO plan")
    op.add_column("jobs", sa.Column("result", sa.String(length=32), nullable=True))
    connection = op.get_bind()
    kinds = dict(connection.execute(sa.select(_RELEASED.c.job_id, _RELEASED.c.kind)).all())
    for job_id, spec in connection.execute(sa.select(_JOBS.c.id, _JOBS.c.spec).where(~_JOBS.c.is_audit)).all():
        result = kinds.get(job_id) or _made_by(spec["method"])
        connection.execute(_JOBS.update().where(_JOBS.c.id == job_id).values(result=result))


def _made_by(method: dict[str, Any] | str) -> str:
    name = method if isinstance(method, str) else method["name"]
    return "classifier" if name in _CLASSIFIERS else "generator"
