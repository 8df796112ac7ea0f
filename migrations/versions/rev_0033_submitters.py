"""Jobs know who submitted them; the audit journal is searched by person and by object."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Add a column that the version before leaves empty, and two indexes."""
    op.add_column("jobs", sa.Column("submitted_by", sa.String(40), nullable=True))
    op.create_index(op.f("ix_audit_entries_tenant_id_actor_seq"), "audit_entries", ["tenant_id", "actor", "seq"])
    op.create_index(
        op.f("ix_audit_entries_tenant_id_object_id_seq"), "audit_entries", ["tenant_id", "object_id", "seq"]
    )
