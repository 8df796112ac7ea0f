"""Two versions can work on one database: it says which ones, and jobs say which workers understand them."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Jobs that are there are of the first format; programs from this revision on go on with later ones."""
    op.add_column("installation", sa.Column("oldest_revision", sa.String(4), nullable=False, server_default=revision))
    op.add_column("jobs", sa.Column("format", sa.BigInteger(), nullable=False, server_default="1"))
