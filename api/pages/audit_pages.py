"""The page of an audit. Every change is a request to `/v1`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.deps import ObjectId, ServicesDep
from api.pages.views import attacks
from api.pages.views.rendering import PageRoute
from api.pages.views.visitor import VisitorDep
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import audits

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/audits/{audit_id}", operation_id="showAudit")
def audit_page(audit_id: ObjectId, visitor: VisitorDep, services: ServicesDep) -> Response:
    """An audit: what was attacked, and what was found."""
    row = attacks.row_of(audits.get(services.database, audit_id))
    result = row.audit.result
    if result is not None:
        attacks.note(services, visitor, audit_id)
    return visitor.page(
        "audit",
        audit=row.audit,
        target=row.target,
        dataset=datasets.get(services.database, row.audit.dataset_id),
        pictures=[attacks.draw(one, f"curve-{one.attack}") for one in (() if result is None else result.attacks)],
    )
