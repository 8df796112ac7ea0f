"""The tables of the first version, and the installation's secret.

Constraints repeat what the ledger checks in code, so that no other program can break it by accident either.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything in the order in which the tables refer to each other."""
    _accounts()
    _api_keys()
    _installation()
    _datasets()
    _ledger_entries()
    _record_fingerprints()
    _jobs()
    _aggregates()
    _artifacts()
    op.execute(
        sa.table("installation", sa.column("id"), sa.column("fingerprint_key"))
        .insert()
        .values(id=1, fingerprint_key=secrets.token_bytes(32))
    )


def downgrade() -> None:
    """Refused: dropping the ledger would forget what was spent."""
    raise NotImplementedError("A ledger is not downgraded; restore a backup and its ledger log instead.")


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("limit_units", sa.BigInteger(), nullable=False),
        sa.Column("reserved_units", sa.BigInteger(), nullable=False),
        sa.Column("charged_units", sa.BigInteger(), nullable=False),
        sa.Column("head_seq", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(length=64), nullable=False),
        sa.Column("frozen_reason", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "charged_units >= 0 AND charged_units <= limit_units", name=op.f("ck_accounts_charged_within_limit")
        ),
        sa.CheckConstraint("head_seq >= 0", name=op.f("ck_accounts_head_not_negative")),
        sa.CheckConstraint("limit_units > 0", name=op.f("ck_accounts_limit_positive")),
        sa.CheckConstraint(
            "reserved_units >= 0 AND reserved_units <= limit_units - charged_units",
            name=op.f("ck_accounts_reserved_within_limit"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("prefix", name="uq_api_keys_prefix"),
    )


def _installation() -> None:
    op.create_table(
        "installation",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fingerprint_key", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_installation_one_row")),
        sa.PrimaryKeyConstraint("id", name="pk_installation"),
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("schema", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("has_test", sa.Boolean(), nullable=False),
        sa.Column("records_path", sa.String(), nullable=False),
        sa.Column("partition_key", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(partition_key IS NULL) = (state = 'deleted')", name=op.f("ck_datasets_key_dies_with_data")
        ),
        sa.CheckConstraint("state IN ('ready', 'deleted')", name=op.f("ck_datasets_state_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_datasets_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_datasets"),
    )
    op.create_index("ix_datasets_account_id", "datasets", ["account_id"])
    op.create_index("ix_datasets_created_at_id", "datasets", ["created_at", "id"])


def _ledger_entries() -> None:
    op.create_table(
        "ledger_entries",
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recovers", sa.String(length=64), nullable=True),
        sa.Column("previous_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("units >= 0", name=op.f("ck_ledger_entries_units_not_negative")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_ledger_entries_account_id"),
        sa.PrimaryKeyConstraint("account_id", "seq", name="pk_ledger_entries"),
        sa.UniqueConstraint("hash", name="uq_ledger_entries_hash"),
    )
    op.create_index("ix_ledger_entries_job_id_step", "ledger_entries", ["job_id", "step"])


def _record_fingerprints() -> None:
    op.create_table(
        "record_fingerprints",
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_record_fingerprints_account_id"),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_record_fingerprints"),
        sqlite_with_rowid=False,
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("request_fingerprint", sa.String(length=64), nullable=False),
        sa.Column("reserved_units", sa.BigInteger(), nullable=False),
        sa.Column("charged_units", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("max_attempts", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("phase", sa.String(length=64), nullable=True),
        sa.Column("progress_value", sa.BigInteger(), nullable=False),
        sa.Column("progress_maximum", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_jobs_state_known")
        ),
        sa.CheckConstraint("NOT settled OR reserved_units = 0", name=op.f("ck_jobs_settled_holds_nothing")),
        sa.CheckConstraint("reserved_units >= 0 AND charged_units >= 0", name=op.f("ck_jobs_units_not_negative")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_jobs_account_id"),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_jobs_dataset_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("idempotency_key", name="uq_jobs_idempotency_key"),
    )
    op.create_index("ix_jobs_account_id", "jobs", ["account_id"])
    op.create_index("ix_jobs_created_at_id", "jobs", ["created_at", "id"])
    op.create_index("ix_jobs_dataset_id", "jobs", ["dataset_id"])
    op.create_index("ix_jobs_state_created_at", "jobs", ["state", "created_at"])


def _aggregates() -> None:
    op.create_table(
        "aggregates",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("encoding", sa.String(length=16), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_aggregates_job_id"),
        sa.PrimaryKeyConstraint("job_id", "step", name="pk_aggregates"),
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.String(length=128), nullable=False),
        sa.Column("releasable", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id"),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_artifacts"),
    )
