"""Tables beside the ledger: what the service tells and keeps about jobs, tenants, callers and hooks. Types only.

`audit_entries` is a journal like that of an account, one chain per tenant; triggers refuse to change or delete it.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from datalens_service.proof.hash_chain import GENESIS
from datalens_service.store.schema.tables import HASH_LENGTH, ID_LENGTH, PRESENT, Base

GENERATOR: Final = "generator"
CLASSIFIER: Final = "classifier"


class JobEventRow(Base):
    """One thing that happened to a job, in public numbers: state, progress, units charged by then."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str | None] = mapped_column(String(64))
    value: Mapped[int]
    maximum: Mapped[int]
    charged_units: Mapped[int]
    created_at: Mapped[datetime]


class JobTotalsRow(Base):
    """Totals of a tenant's jobs that have ended alike (`store/schema/job_totals.py`); kept by a trigger of `jobs`.

    `kind` is of the model that they make, or "audit". `artifact_bytes` are of files that anybody may have, `seconds`
    from first start to end.
    """

    __tablename__ = "job_totals"

    tenant_id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    jobs: Mapped[int]
    models: Mapped[int]
    seconds: Mapped[int]
    artifact_bytes: Mapped[int]


class WorkerRow(Base):
    """A loop that takes jobs, as it last said of itself (`store/jobs/attendance.py`).

    `queue` is None where it takes jobs of all queues, `gpu` while it does not know,
    `trouble` where it could take a job.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(255), primary_key=True)
    queue: Mapped[str | None] = mapped_column(String(64))
    gpu: Mapped[bool | None]
    trouble: Mapped[str | None] = mapped_column(String(1000))
    seen_at: Mapped[datetime]
    ended: Mapped[bool]


class TenantRow(Base):
    """A house of its own within the service, and the head of its audit journal."""

    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    audit_seq: Mapped[int] = mapped_column(default=0)
    audit_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    audit_base_seq: Mapped[int] = mapped_column(default=0, server_default="0")
    """Number of the last entry of its journal that was removed for its age."""
    audit_base_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), default=GENESIS, server_default=GENESIS)
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    removing_since: Mapped[datetime | None]
    """Since then, nothing of it works any more, and everything but its budgets leaves."""
    removed_at: Mapped[datetime | None]
    receipt: Mapped[dict[str, Any] | None]
    """Signed once everything has left; before, what there was to be removed."""


class RetentionRow(Base):
    """For how many days things are kept, in a tenant or, where it names none, everywhere; null is for ever."""

    __tablename__ = "retention"

    tenant_id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    datasets: Mapped[int | None]
    results: Mapped[int | None]
    uploads: Mapped[int | None]
    events: Mapped[int | None]
    deliveries: Mapped[int | None]
    journal: Mapped[int | None]


class RemovalRow(Base):
    """Files whose rows are gone and that have to go as well (`store/removals.py`); deleted once they have."""

    __tablename__ = "removals"

    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    path: Mapped[str] = mapped_column(String(512), primary_key=True)
    noted_at: Mapped[datetime] = mapped_column(default=PRESENT)


class TenantQuotaRow(Base):
    """Limits of what a tenant may have at once (`store/access/quotas.py`); null is no limit."""

    __tablename__ = "tenant_quotas"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    bytes: Mapped[int | None]
    datasets: Mapped[int | None]
    jobs: Mapped[int | None]
    requests_per_minute: Mapped[int | None]


class BrowserSessionRow(Base):
    """A signed-in browser: the SHA-256 of its token, never the token. Deleted when it signs out."""

    __tablename__ = "browser_sessions"
    __table_args__ = (Index(None, "key_id"),)

    token_sha256: Mapped[str] = mapped_column(String(HASH_LENGTH), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime]


class AuditEntryRow(Base):
    """Records who did what to which object, and what came of it. `hash` covers all other columns."""

    __tablename__ = "audit_entries"
    __table_args__ = (
        Index(None, "tenant_id", "actor", "at"),
        Index(None, "tenant_id", "actor", "seq"),
        Index(None, "tenant_id", "object_id", "seq"),
    )

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(ID_LENGTH))
    action: Mapped[str] = mapped_column(String(64))
    object_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    outcome: Mapped[int]
    detail: Mapped[str]
    previous_hash: Mapped[str] = mapped_column(String(HASH_LENGTH))
    hash: Mapped[str] = mapped_column(String(HASH_LENGTH), unique=True)


class ReleasedModelRow(Base):
    """A model that a job made, or a generator that somebody brought along; `job_id` is null for the latter.

    `title` and `license` are public: whoever gets the release sees them.
    """

    __tablename__ = "generators"
    __table_args__ = (
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "tenant_id", "kind", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    kind: Mapped[str] = mapped_column(String(32), server_default="generator")
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    name: Mapped[str] = mapped_column(String(200))
    card: Mapped[dict[str, Any] | None]
    sha256: Mapped[str | None] = mapped_column(String(HASH_LENGTH))
    title: Mapped[str] = mapped_column(String(200), default="", server_default="")
    license: Mapped[str] = mapped_column(String(32), default="other", server_default="other")
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class ReleaseLinkRow(Base):
    """An address by which one partner gets one release: the SHA-256 of its secret, and a prefix to find it by.

    `partner` says who that is, for the tenant alone.
    """

    __tablename__ = "release_links"
    __table_args__ = (Index(None, "release_id", "created_at", "id"), Index(None, "key_id"))

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    release_id: Mapped[str] = mapped_column(ForeignKey("generators.id", ondelete="CASCADE"))
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    partner: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    sha256: Mapped[str] = mapped_column(String(HASH_LENGTH))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class ReleasedImageRow(Base):
    """Hash of the pixels of a synthetic image that a job packed: released, and of no private image."""

    __tablename__ = "released_images"
    __table_args__ = (Index(None, "job_id"), {"sqlite_with_rowid": False})

    pixel_hash: Mapped[bytes] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)


class WebhookRow(Base):
    """An address that is told of events; `secret` signs what is sent and has to be kept as it is."""

    __tablename__ = "webhooks"
    __table_args__ = (Index(None, "tenant_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    url: Mapped[str] = mapped_column(String(2048))
    secret: Mapped[str] = mapped_column(String(128))
    events: Mapped[str]
    enabled: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)


class DeliveryRow(Base):
    """One message to one webhook: what is sent, how often it was tried, and when it is tried next."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="state_known"),
        Index(None, "state", "next_attempt_at"),
        Index(None, "webhook_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(32))
    payload: Mapped[str]
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime]
    status: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(default=PRESENT)
    delivered_at: Mapped[datetime | None]
