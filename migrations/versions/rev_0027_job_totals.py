"""Totals of the jobs that have ended are kept, in place of an index to add them up by."""

from __future__ import annotations

from alembic import op

from datalens_service.store import job_totals
from datalens_service.store.service_tables import JobTotalsRow

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """All that have ended are added up once."""
    connection = op.get_bind()
    JobTotalsRow.__table__.create(connection)  # type: ignore[attr-defined]
    job_totals.fill(connection)
    job_totals.keep(connection)
    op.drop_index(op.f("ix_jobs_tenant_id_state_is_audit_started_at_finished_at"), "jobs")


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
