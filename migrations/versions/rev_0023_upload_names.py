"""Name of the file that an upload brings."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Those that are there came without one."""
    op.add_column("uploads", sa.Column("name", sa.String(length=200), nullable=True))
