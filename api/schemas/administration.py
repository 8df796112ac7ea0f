"""Retention, and tenants as the operator sees them, as requests and answers."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from datalens_service.api.schemas.access import QuotasRead
from datalens_service.base.clock import to_second
from datalens_service.base.fields import Integer, Strict, copied
from datalens_service.client.models import DueInfo
from datalens_service.services.due import Due
from datalens_service.store.access.quotas import Quotas
from datalens_service.store.access.retention import LONGEST, SHORTEST_JOURNAL, Retention
from datalens_service.store.access.tenants import Tenant
from datalens_service.store.schema.tables import LARGEST_UNITS

Days = Annotated[Integer | None, Field(default=None, ge=0, le=LONGEST)]
Limit = Annotated[Integer | None, Field(default=None, ge=0, le=LARGEST_UNITS)]


class RetentionDays(Strict):
    """Days for which things are kept; null, or left out, is for ever."""

    datasets: Days = Field(description="Data sets with their records, from their upload on.")
    results: Days = Field(description="Files of jobs and findings of audits from their end, imported generators.")
    uploads: Days = Field(description="Reports on uploads that could not be used.")
    events: Days = Field(description="Events of jobs that have ended, but the last one.")
    deliveries: Days = Field(description="Messages to webhooks that were delivered or given up.")
    journal: Integer | None = Field(
        default=None, ge=SHORTEST_JOURNAL, le=LONGEST, description="Entries of the audit journal."
    )

    def policy(self) -> Retention:
        return copied(Retention, self)

    @classmethod
    def from_policy(cls, policy: Retention) -> Self:
        return copied(cls, policy)


class RetentionRead(BaseModel):
    """The policies of the installation and of the tenant. Of each kind the shorter time counts."""

    everywhere: RetentionDays
    own: RetentionDays
    effective: RetentionDays


class DueRead(DueInfo):
    """Something that retention removes."""


class DueList(BaseModel):
    """Everything that retention removes, soonest first."""

    items: list[DueRead]

    @classmethod
    def from_due(cls, found: Iterable[Due]) -> Self:
        return cls(items=[copied(DueRead, one, at=to_second(one.at)) for one in found])


class QuotasChange(Strict):
    """Quotas of a tenant in place of those that it has; null, or left out, is no limit."""

    bytes: Limit = Field(description="Of records on the disk, and of uploads that were announced.")
    datasets: Limit = Field(description="That are not deleted.")
    jobs: Limit = Field(description="And audits, that have not ended.")
    requests_per_minute: Integer | None = Field(default=None, ge=1, le=LARGEST_UNITS, description="Of all keys.")

    def quotas(self) -> Quotas:
        return copied(Quotas, self)


class TenantRead(BaseModel):
    """A tenant as the operator sees it."""

    id: str
    name: str
    created_at: datetime
    removing_since: datetime | None = Field(description="When its removal began; nothing of it works since then.")
    removed_at: datetime | None = Field(description="When nothing but its budgets was left.")
    quotas: QuotasRead = Field(description="Those that count, defaults of the installation included.")
    retention: RetentionDays = Field(description="What counts, the policy of the installation included.")
    receipt: dict[str, Any] | None = Field(
        description="Once it was removed: what left, what stays and why, signed; `datalens verify` checks it."
    )

    @classmethod
    def from_tenant(cls, tenant: Tenant, quotas: Quotas, policy: Retention) -> Self:
        return cls(
            **{name: value for name, value in vars(tenant).items() if name != "receipt"},
            quotas=QuotasRead(**vars(quotas)),
            retention=RetentionDays.from_policy(policy),
            receipt=tenant.receipt if tenant.removed_at is not None else None,
        )


class TenantList(BaseModel):
    """All tenants, oldest first, removed ones included."""

    items: list[TenantRead]


class TenantRemoval(Strict):
    """Request to remove a tenant."""

    name: str = Field(max_length=200, description="Its name once more, so that no other one is removed.")
