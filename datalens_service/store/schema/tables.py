"""The tables. Types and constraints only; what may change when is in the modules beside this one.

`accounts` is the privacy budget of a set of records, `reservations` what it holds for jobs and measurements,
`ledger_entries` its append-only journal, and `record_fingerprints` ties every record ever uploaded to exactly one
account. Triggers (see `new_database`) refuse to change or delete journal rows, to delete data sets, accounts,
reservations and fingerprints, and to lower a spend.

All numbers of privacy are BIGINT ledger units (1e-15 of μ²).
"""

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    false,
    func,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, foreign, mapped_column, relationship

ID_LENGTH = 40
HASH_LENGTH = 64
LARGEST_UNITS = 2**63 - 1
DEFAULT_TENANT = "default"
"""Tenant of everything that names no other."""
DEFAULT_PRIORITY = 5
"""Priority of a job that names none."""
JOB_FORMAT: Final = 2
"""Raised, once in a release, when a worker of the version before would refuse or misread what a job now stores."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant; refuses naive values, reads back as UTC on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Convert a time to UTC before it is stored."""
        if value is not None and value.tzinfo is None:
            raise ValueError("An instant needs a time zone.")
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """SQLite forgets the zone; it was UTC."""
        if value is not None and value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value and value.astimezone(UTC)


PRESENT: Final = func.clock_timestamp(type_=UtcDateTime())
"""The present instant by the clock of the database; on SQLite a function of ours (`database_clock.py`)."""


class Base(DeclarativeBase):
    """Common naming of constraints, so that migrations can address them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (read by SQLAlchemy when the class is made)
        datetime: UtcDateTime(),
        int: BigInteger(),
        dict[str, Any]: JSON(none_as_null=True),
        list[str]: JSON(none_as_null=True),
        bytes: LargeBinary(),
    }


class InstallationRow(Base):
    """The one row of secrets that belong to the database itself; written when the database is made."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fingerprint_key: Mapped[bytes]
    checked_log_bytes: Mapped[int] = mapped_column(default=0)
    """Length of the ledger log whose data sets are known here."""
    oldest_revision: Mapped[str] = mapped_column(String(4), server_default="0031")
    """The oldest revision whose programs work with these tables; one that takes something away raises it."""


class AccountRow(Base):
    """The lifetime budget of a set of records, and the head of its journal."""

    __tablename__ = "accounts"
    __table_args__ = (
        CheckConstraint("limit_units > 0", name="limit_positive"),
        CheckConstraint("charged_units >= 0 AND charged_units <= limit_units", name="charged_within_limit"),
        # Written as a difference: a sum of two BIGINTs could overflow, this cannot.
        CheckConstraint(
            "reserved_units >= 0 AND reserved_units <= limit_units - charged_units", name="reserved_within_limit"
        ),
        CheckConstraint(
            "reserved_slack >= 0 AND charged_slack >= 0 AND held_for_slack >= 0 "
            "AND (held_for_slack > 0 OR (reserved_slack = 0 AND charged_slack = 0)) "
            "AND reserved_units <= limit_units - charged_units - held_for_slack",
            name="slack_is_held",
        ),
        CheckConstraint("head_seq >= 0", name="head_not_negative"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    epsilon: Mapped[float]
    delta: Mapped[float]
    limit_units: Mapped[int]
    reserved_units: Mapped[int] = mapped_column(default=0)
    charged_units: Mapped[int] = mapped_column(default=0)
    reserved_slack: Mapped[int] = mapped_column(default=0)
    """Slack of jobs with sampled batches, in 1e-18 of δ."""
    charged_slack: Mapped[int] = mapped_column(default=0)
    held_for_slack: Mapped[int] = mapped_column(default=0)
    """Units by which reserved and charged slack lower what the limit holds."""
    head_seq: Mapped[int] = mapped_column(default=0)
    head_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    frozen_reason: Mapped[str | None]
    checked_log_bytes: Mapped[int] = mapped_column(default=0)
    """Length of the ledger log whose charges of this account are in its journal."""
    unbooked_units: Mapped[int] = mapped_column(default=0)
    """Units that the log knows as spent beyond `charged_units`; 0 unless the account is frozen."""
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class DatasetRow(Base):
    """An upload: its public schema, where its records lie, and the account that pays for it."""

    __tablename__ = "datasets"
    __table_args__ = (
        CheckConstraint("state IN ('ready', 'deleted')", name="state_known"),
        CheckConstraint("(partition_key IS NULL) = (state = 'deleted')", name="key_dies_with_data"),
        Index(None, "account_id"),
        Index(None, "created_at", "id"),
        Index(None, "tenant_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT_TENANT)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    name: Mapped[str]
    state: Mapped[str] = mapped_column(String(16))
    schema: Mapped[dict[str, Any]]
    format: Mapped[str] = mapped_column(String(32))
    has_test: Mapped[bool]
    records_path: Mapped[str]
    partition_key: Mapped[bytes | None]
    tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    notes: Mapped[str] = mapped_column(Text, default="", server_default="")
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    deleted_at: Mapped[datetime | None]


class UploadRow(Base):
    """A file that arrives in pieces: how much of it is known to be on the disk."""

    __tablename__ = "uploads"
    __table_args__ = (
        CheckConstraint("length > 0 AND received >= 0 AND received <= length", name="received_within_length"),
        Index(None, "expires_at"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    length: Mapped[int]
    received: Mapped[int] = mapped_column(default=0)
    name: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    expires_at: Mapped[datetime]


class IntakeRow(Base):
    """An upload before it is a data set. `report` is for the owner alone and goes with the data."""

    __tablename__ = "intakes"
    __table_args__ = (
        CheckConstraint("state IN ('validating', 'review', 'ready', 'invalid', 'deleted')", name="state_known"),
        Index(None, "state"),
        Index(None, "created_at", "dataset_id"),
    )

    dataset_id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    upload_id: Mapped[str | None] = mapped_column(String(ID_LENGTH), unique=True)
    state: Mapped[str] = mapped_column(String(16))
    form: Mapped[dict[str, Any]]
    report: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    finished_at: Mapped[datetime | None]


class RecordFingerprintRow(Base):
    """Keyed hash of one record ever uploaded; the primary key lets it belong to one account only."""

    __tablename__ = "record_fingerprints"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 (read by SQLAlchemy when the class is made)

    fingerprint: Mapped[bytes] = mapped_column(primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    unit_print: Mapped[bytes | None]


class ReservationRow(Base):
    """The budget that an account holds for one job or measurement, and what was charged to it.

    `id` is the `job_id` of its journal entries.
    """

    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint("owner_kind IN ('job', 'measurement')", name="owner_kind_known"),
        CheckConstraint("reserved_units >= 0 AND charged_units >= 0", name="units_not_negative"),
        CheckConstraint("NOT settled OR reserved_units = 0", name="settled_holds_nothing"),
        Index(None, "account_id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    owner_kind: Mapped[str] = mapped_column(String(16))
    owner_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    reserved_units: Mapped[int] = mapped_column(default=0)
    charged_units: Mapped[int] = mapped_column(default=0)
    settled: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class ApiKeyRow(Base):
    """An API key: its SHA-256 and a prefix to find it by, never the key.

    The role of a steward is that of a consumer with `is_steward`, which earlier versions do not know.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("role IN ('owner', 'operator', 'consumer')", name="role_known"),
        Index(None, "tenant_id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT_TENANT)
    role: Mapped[str] = mapped_column(String(16), default="owner")
    is_steward: Mapped[bool] = mapped_column(default=False, server_default=false())
    made_by: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    """The key with which it was made; None for one that was made on the machine of the service."""
    scopes: Mapped[str | None]
    requests_per_minute: Mapped[int | None]
    concurrent_requests: Mapped[int | None]
    expires_at: Mapped[datetime | None]
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    revoked_at: Mapped[datetime | None]


class JobRow(Base):
    """A training job: what was asked and who runs it. Its budget is in its reservation.

    With `measured_job_id` it is what that job pays for a figure on a data set that was set aside. With `is_audit` it is
    an attack for the owner of the data set: it releases nothing, so its reservation is empty and settled from the start
    (`store/jobs/audits.py`).
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "state IN ('queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled')", name="state_known"
        ),
        CheckConstraint("priority BETWEEN 0 AND 9", name="priority_in_range"),
        Index(None, "account_id"),
        Index(None, "dataset_id", "is_audit", "created_at", "id"),
        Index(None, "measured_job_id"),
        Index(None, "state", "finished_at"),
        Index(None, "state", "created_at"),
        Index(None, "created_at", "id"),
        Index(None, "tenant_id", "is_audit", "created_at", "id"),
        Index(None, "tenant_id", "is_audit", "state", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT_TENANT)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    state: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(200), default="", server_default="")
    tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    notes: Mapped[str] = mapped_column(Text, default="", server_default="")
    approval: Mapped[str | None] = mapped_column(String(16))
    """Decision of a second person about its result; None where nobody decides (`store/jobs/approvals.py`)."""
    decided_by: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    decided_at: Mapped[datetime | None]
    decision_reason: Mapped[str | None] = mapped_column(String(500))
    spec: Mapped[dict[str, Any]]
    format: Mapped[int] = mapped_column(default=JOB_FORMAT, server_default="1")
    """Format of spec and plan; a worker takes jobs of its own format and of earlier ones."""
    result: Mapped[str | None] = mapped_column(String(32))
    """Kind of the model that it makes; None for an audit."""
    price: Mapped[dict[str, Any]]
    """The price, as it is shown."""
    plan: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """The plan that is run; it may be long, so `jobs.get_plan` reads it separately."""
    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    request_fingerprint: Mapped[str] = mapped_column(String(HASH_LENGTH))
    measured_job_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    is_audit: Mapped[bool] = mapped_column(default=False)
    lease_token: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int]
    queue: Mapped[str | None] = mapped_column(String(64))
    priority: Mapped[int] = mapped_column(default=DEFAULT_PRIORITY)
    submitted_by: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    """Id of the key or person, as the audit journal has it; null of rows from before that was recorded."""
    submitter_name: Mapped[str | None] = column_property(
        select(ApiKeyRow.name).where(ApiKeyRow.id == submitted_by).scalar_subquery()
    )
    """Name that the key or person has now."""
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    pause_requested: Mapped[bool] = mapped_column(default=False)
    phase: Mapped[str | None] = mapped_column(String(64))
    progress_value: Mapped[int] = mapped_column(default=0)
    progress_maximum: Mapped[int] = mapped_column(default=0)
    phase_started_at: Mapped[datetime | None]
    phase_start: Mapped[int] = mapped_column(default=0)
    error: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    started_at: Mapped[datetime | None]
    released_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    results_removed_at: Mapped[datetime | None]
    reservation: Mapped[ReservationRow] = relationship(
        primaryjoin=lambda: JobRow.id == foreign(ReservationRow.owner_id), lazy="joined", innerjoin=True
    )

    @property
    def reserved_units(self) -> int:
        """Return what its reservation still holds."""
        return self.reservation.reserved_units

    @property
    def charged_units(self) -> int:
        return self.reservation.charged_units


class PrivacyAuditRow(Base):
    """The result of attacks, for the owner of the data set alone; `result` goes with the data.

    Apart from `jobs`, so that nothing that reads a job can show it.
    """

    __tablename__ = "privacy_audits"
    __table_args__ = (Index(None, "attacked_job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attacked_job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    result: Mapped[dict[str, Any] | None]


class LedgerEntryRow(Base):
    """One line of an account's journal. Never changed, never deleted; `hash` covers all other columns.

    `job_id` is no foreign key: the journal outlives what it speaks of.
    """

    __tablename__ = "ledger_entries"
    __table_args__ = (
        CheckConstraint("units >= 0", name="units_not_negative"),
        CheckConstraint("slack >= 0", name="slack_not_negative"),
        Index(None, "job_id", "step"),
        # The index has deletions alone: PostgreSQL would read the whole journal for one.
        Index(None, "dataset_id", sqlite_where=text("kind = 'delete'"), postgresql_where=text("kind = 'delete'")),
    )

    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    dataset_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    job_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    step: Mapped[int | None]
    label: Mapped[str]
    ledger_units: Mapped[int] = mapped_column("units", key="ledger_units")
    slack: Mapped[int] = mapped_column(default=0)
    lease_token: Mapped[int | None]
    at: Mapped[datetime]
    recovers: Mapped[str | None] = mapped_column(String(HASH_LENGTH))
    previous_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    hash: Mapped[str] = mapped_column(String(HASH_LENGTH), unique=True)


class AggregateRow(Base):
    """The noisy sum of one step: already paid for, so public; replayed on resume instead of drawn again."""

    __tablename__ = "aggregates"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    lease_token: Mapped[int]
    encoding: Mapped[str] = mapped_column(String(16))
    payload: Mapped[bytes]
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class ReleasedStateRow(Base):
    """A function of all sums of a job before `step`, kept in their place: released, so public."""

    __tablename__ = "released_states"
    __table_args__ = (CheckConstraint("step > 0", name="step_positive"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    step: Mapped[int]
    lease_token: Mapped[int]
    payload: Mapped[bytes]
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class ReleasedIteratesRow(Base):
    """Weights at which the sums before `step` were taken, of a job that keeps them until it has ended; released."""

    __tablename__ = "released_iterates"
    __table_args__ = (CheckConstraint("step > 0", name="step_positive"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    lease_token: Mapped[int]
    payload: Mapped[bytes]
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class ArtifactRow(Base):
    """A file a job made; `releasable` says whether anyone but the owner may ever get it."""

    __tablename__ = "artifacts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    path: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    size: Mapped[int]
    media_type: Mapped[str] = mapped_column(String(128))
    releasable: Mapped[bool]
    created_at: Mapped[datetime]
