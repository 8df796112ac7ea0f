"""Results may wait for a second person, who is a steward; keys know which key made them."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

_MADE_BY: tuple[str, ...] = (
    "SELECT MIN(actor) FROM audit_entries WHERE action = 'createApiKey' AND object_id = api_keys.id AND outcome = 201",
    "SELECT MIN(actor) FROM audit_entries WHERE action = 'rotateApiKey' AND detail = 'made ' || api_keys.id",
)


def upgrade() -> None:
    """Add columns that the version before does not know of; to it a steward is a consumer.

    It hands out results that wait: nobody should ask for approval before every process is of this version.
    """
    op.add_column("api_keys", sa.Column("is_steward", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("api_keys", sa.Column("made_by", sa.String(40), nullable=True))
    op.execute(f"UPDATE api_keys SET made_by = COALESCE(({_MADE_BY[0]}), ({_MADE_BY[1]}))")  # noqa: S608 (constants)
    op.add_column("jobs", sa.Column("approval", sa.String(16), nullable=True))
    op.add_column("jobs", sa.Column("decided_by", sa.String(40), nullable=True))
    op.add_column("jobs", sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("decision_reason", sa.String(500), nullable=True))
