"""Jobs that ended lately, and what a tenant has used, are found without a look at the rows of all jobs of the past."""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the indices of both questions."""
    for columns in (["state", "finished_at"], ["tenant_id", "state", "is_audit", "started_at", "finished_at"]):
        op.create_index(op.f(f"ix_jobs_{'_'.join(columns)}"), "jobs", columns)
