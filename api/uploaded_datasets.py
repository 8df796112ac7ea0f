"""An upload as whoever sends or confirms it sees it."""

from __future__ import annotations

from api.deps import Services
from api.schemas.datasets import UploadedDataset
from datalens_service.store.access import tenants
from datalens_service.store.datasets import validations, views
from datalens_service.store.ledger import account_summary


def check_own_account(services: Services, tenant_id: str, dataset_id: str | None) -> None:
    """Refuse an upload that would share the budget of another tenant's dataset, as if that did not exist.

    Raises:
        NotFound: It would.
    """
    if dataset_id is not None:
        with services.database.connection() as connection:
            tenants.check_owned(connection, tenant_id, {"dataset_id": dataset_id})


def read_uploaded(services: Services, dataset_id: str) -> UploadedDataset:
    """One upload with what its owner alone may know of it."""
    upload, validation = views.get(services.database, dataset_id), validations.get(services.database, dataset_id)
    if upload.contents is None:
        return UploadedDataset.of_upload(upload, None, validation)
    with services.database.session() as session:
        return UploadedDataset.of_upload(upload, account_summary.summarize_account(session, dataset_id), validation)
