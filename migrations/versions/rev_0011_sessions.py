"""Sessions of browsers, which signing out ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Whoever is signed in signs in once more: earlier cookies stood for no row and could not be ended."""
    op.create_table(
        "browser_sessions",
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_browser_sessions_key_id"),
        sa.PrimaryKeyConstraint("token_sha256", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_key_id", "browser_sessions", ["key_id"])


def downgrade() -> None:
    """Everybody is signed out."""
    op.drop_table("browser_sessions")
