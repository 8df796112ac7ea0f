"""Tenants, roles, audit journal, generators as objects, webhooks; limits that only rise."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from migrations.guards import refuse, refuse_update_when

revision = "0005"
down_revision = "0009"
branch_labels = None
depends_on = None

_DEFAULT = "default"
_GENESIS = "0" * 64
_ID = sa.String(length=40)
_HASH = sa.String(length=64)
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Everything that exists belongs to the tenant `default`; every key that exists is an owner's."""
    _tenants()
    _members()
    _audit()
    _generators()
    _webhooks()
    refuse_update_when(
        "accounts",
        "accounts_no_lowering",
        "NEW.limit_units < OLD.limit_units OR NEW.delta <> OLD.delta",
        "accounts: a limit only rises, and delta stays",
    )


def downgrade() -> None:
    """Refused: without tenants, everybody would see everything."""
    raise NotImplementedError("Tenants are not removed.")


def _tenants() -> None:
    table = op.create_table(
        "tenants",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), nullable=False),
        sa.Column("audit_hash", _HASH, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    row = {"id": _DEFAULT, "name": _DEFAULT, "audit_seq": 0, "audit_hash": _GENESIS, "created_at": datetime.now(UTC)}
    op.bulk_insert(table, [row])


def _members() -> None:
    for table in ("datasets", "jobs", "api_keys"):
        op.add_column(table, sa.Column("tenant_id", _ID, nullable=False, server_default=_DEFAULT))
    for table in ("datasets", "jobs"):
        op.create_index(f"ix_{table}_tenant_id_created_at_id", table, ["tenant_id", "created_at", "id"])
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])
    known = "role IN ('owner', 'operator', 'consumer')"
    role = sa.Column("role", sa.String(length=16), nullable=False, server_default="owner")
    if op.get_bind().dialect.name == "sqlite":
        # SQLite takes a constraint with a new column only.
        op.execute(
            "ALTER TABLE api_keys ADD COLUMN role VARCHAR(16) DEFAULT 'owner' NOT NULL "
            f"CONSTRAINT ck_api_keys_role_known CHECK ({known})"
        )
    else:
        op.add_column("api_keys", role)
        op.create_check_constraint(op.f("ck_api_keys_role_known"), "api_keys", known)
    op.add_column("api_keys", sa.Column("scopes", sa.String(), nullable=True))
    op.add_column("api_keys", sa.Column("requests_per_minute", sa.BigInteger(), nullable=True))
    op.add_column("api_keys", sa.Column("concurrent_requests", sa.BigInteger(), nullable=True))
    op.add_column("api_keys", sa.Column("expires_at", _TIME, nullable=True))


def _audit() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("actor", _ID, nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("object_id", _ID, nullable=True),
        sa.Column("outcome", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("previous_hash", _HASH, nullable=False),
        sa.Column("hash", _HASH, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_audit_entries_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "seq", name="pk_audit_entries"),
        sa.UniqueConstraint("hash", name="uq_audit_entries_hash"),
    )
    refuse("audit_entries", "UPDATE")
    refuse("audit_entries", "DELETE")


def _generators() -> None:
    op.create_table(
        "generators",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("job_id", _ID, nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("card", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("sha256", _HASH, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_generators_job_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_generators_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_generators"),
        sa.UniqueConstraint("job_id", name="uq_generators_job_id"),
    )
    op.create_index("ix_generators_tenant_id_created_at_id", "generators", ["tenant_id", "created_at", "id"])
    op.execute(
        "INSERT INTO generators (id, tenant_id, job_id, name, created_at) "
        "SELECT 'gen_' || substr(id, 5), tenant_id, id, id, finished_at FROM jobs WHERE state = 'succeeded'"
    )


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("url", sa.String(length=2048), nullable=False),
        sa.Column("secret", sa.String(length=128), nullable=False),
        sa.Column("events", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_webhooks_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_tenant_id_created_at_id", "webhooks", ["tenant_id", "created_at", "id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("webhook_id", _ID, nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_attempt_at", _TIME, nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("delivered_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'delivered', 'failed')", name=op.f("ck_webhook_deliveries_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="fk_webhook_deliveries_webhook_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_webhook_deliveries_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
    )
    op.create_index("ix_webhook_deliveries_state_next_attempt_at", "webhook_deliveries", ["state", "next_attempt_at"])
    op.create_index(
        "ix_webhook_deliveries_webhook_id_created_at_id", "webhook_deliveries", ["webhook_id", "created_at", "id"]
    )
