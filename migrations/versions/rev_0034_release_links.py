"""Releases have a title and a licence, and links for partners."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Add a table and two columns that the version before does not know of."""
    op.add_column("generators", sa.Column("title", sa.String(200), server_default="", nullable=False))
    op.add_column("generators", sa.Column("license", sa.String(32), server_default="other", nullable=False))
    op.create_table(
        "release_links",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("tenant_id", sa.String(40), nullable=False),
        sa.Column("release_id", sa.String(40), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("partner", sa.String(200), nullable=False),
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_release_links_tenant_id")),
        sa.ForeignKeyConstraint(
            ["release_id"], ["generators.id"], name=op.f("fk_release_links_release_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_release_links_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_release_links")),
        sa.UniqueConstraint("prefix", name=op.f("uq_release_links_prefix")),
    )
    name = op.f("ix_release_links_release_id_created_at_id")
    op.create_index(name, "release_links", ["release_id", "created_at", "id"])
    op.create_index(op.f("ix_release_links_key_id"), "release_links", ["key_id"])
