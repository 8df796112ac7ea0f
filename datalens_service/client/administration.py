"""Requests about retention, and about tenants for the operator."""

from datalens_service.client.models import (
    DueInfo,
    QuotasInfo,
    ResponseModel,
    RetentionDays,
    RetentionInfo,
    TenantInfo,
)
from datalens_service.client.transport import Transport


class _DueList(ResponseModel):
    items: tuple[DueInfo, ...]


class _TenantList(ResponseModel):
    items: tuple[TenantInfo, ...]


class AdministrationOperations:
    """Methods of the client about retention and tenants. Those about tenants are for owners' keys of the first one."""

    _transport: Transport

    def retention(self) -> RetentionInfo:
        """Return for how many days things are kept."""
        return self._transport.send("GET", "/v1/retention", RetentionInfo)

    def set_retention(self, days: RetentionDays) -> RetentionInfo:
        """Set for how many days things of the own tenant are kept. What is older leaves within a minute, for good."""
        return self._transport.send("PUT", "/v1/retention", RetentionInfo, {"json": days.model_dump()})

    def set_installation_retention(self, days: RetentionDays) -> RetentionInfo:
        """Set for how many days things of all tenants are kept at most; for owners' keys of the first tenant."""
        return self._transport.send("PUT", "/v1/retention/everywhere", RetentionInfo, {"json": days.model_dump()})

    def due_removals(self, *, within_days: int = 30, tried: RetentionDays | None = None) -> tuple[DueInfo, ...]:
        """Return what leaves within some days, soonest first, at most 1,000 things. Removes nothing.

        Args:
            tried: Days to be tried in place of those that are set.
        """
        fields = {"within_days": within_days, **(tried or RetentionDays()).model_dump()}
        # Zero is a number of days: only None leaves a field out.
        params = {name: str(days) for name, days in fields.items() if days is not None}
        return self._transport.send("GET", "/v1/retention/preview", _DueList, {"params": params}).items

    def tenants(self) -> tuple[TenantInfo, ...]:
        """Return all tenants, oldest first, removed ones included."""
        return self._transport.send("GET", "/v1/tenants", _TenantList).items

    def get_tenant(self, tenant_id: str) -> TenantInfo:
        """Return a tenant; once it was removed, with the signed receipt."""
        return self._transport.send("GET", f"/v1/tenants/{tenant_id}", TenantInfo)

    def set_tenant_quotas(self, tenant_id: str, quotas: QuotasInfo) -> TenantInfo:
        """Replace what a tenant may have at once; what it has already stays."""
        return self._transport.send("PUT", f"/v1/tenants/{tenant_id}/quotas", TenantInfo, {"json": quotas.model_dump()})

    def remove_tenant(self, tenant_id: str, *, name: str) -> TenantInfo:
        """Remove a tenant with everything but its budgets, for good. Repeatable; poll `get_tenant` for the receipt.

        Args:
            name: Its name once more, so that no other one is removed.
        """
        return self._transport.send("POST", f"/v1/tenants/{tenant_id}:remove", TenantInfo, {"json": {"name": name}})
