"""Tenants may have quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Add a table that the version before does not know of."""
    op.create_table(
        "tenant_quotas",
        sa.Column("tenant_id", sa.String(40), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("datasets", sa.BigInteger(), nullable=True),
        sa.Column("jobs", sa.BigInteger(), nullable=True),
        sa.Column("requests_per_minute", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_tenant_quotas_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_tenant_quotas")),
    )
