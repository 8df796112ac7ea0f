"""Workers note that they are alive, so that a service without one can say so."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """A table that the version before does not know of."""
    op.create_table(
        "workers",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("queue", sa.String(64), nullable=True),
        sa.Column("gpu", sa.Boolean(), nullable=True),
        sa.Column("trouble", sa.String(1000), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
