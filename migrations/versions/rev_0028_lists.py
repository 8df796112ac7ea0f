"""Lists by state, of audits and of a kind of model, deletions and the last use of a key do not read the past."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Six indices, two of them in place of others."""
    for table, columns in (
        ("jobs", ["dataset_id", "is_audit", "created_at", "id"]),
        ("jobs", ["tenant_id", "is_audit", "created_at", "id"]),
        ("jobs", ["tenant_id", "is_audit", "state", "created_at", "id"]),
        ("generators", ["tenant_id", "kind", "created_at", "id"]),
        ("audit_entries", ["tenant_id", "actor", "at"]),
    ):
        op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, columns)
    which = sa.text("kind = 'delete'")
    deletions = op.f("ix_ledger_entries_dataset_id")
    op.create_index(deletions, "ledger_entries", ["dataset_id"], sqlite_where=which, postgresql_where=which)
    for name in ("ix_jobs_dataset_id_created_at_id", "ix_jobs_tenant_id_created_at_id"):
        op.drop_index(op.f(name), "jobs")
