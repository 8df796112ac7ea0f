"""Bugs by which private images would teach a model as if they were public."""

from typing import Any

import pytest

from datalens_service.jobs import execute
from datalens_service.services import pricing
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset

from .plant import Plant


def any_data_set_is_public(patch: pytest.MonkeyPatch) -> None:
    """Only size and state are looked at."""
    check = pricing.check_public_data

    def trusting(database: Database, tenant_id: str, dataset_id: str, private: StoredDataset) -> StoredDataset:
        read = datasets.read

        def as_public(session: Any, identifier: str) -> StoredDataset:
            row = read(session, identifier)
            object.__setattr__(row, "schema", row.schema.model_copy(update={"records_are_public": True}))
            return row

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(datasets, "read", as_public)
            return check(database, tenant_id, dataset_id, private)

    patch.setattr(pricing, "check_public_data", trusting)


def private_images_are_declared_public(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether an upload holds images that came as private ones."""
    patch.setattr(datasets, "_check_none_is_private", lambda session, known: None)


def the_worker_trusts_the_request(patch: pytest.MonkeyPatch) -> None:
    """What was checked when the job was submitted is not checked again."""
    patch.setattr(execute, "_public", lambda database, dataset_id, job: datasets.get(database, dataset_id))


def public_images_may_be_private_too(patch: pytest.MonkeyPatch) -> None:
    """Accounts are not compared: an image of both sets reaches the model without noise."""
    check = pricing.check_public_data

    def apart(database: Database, tenant_id: str, dataset_id: str, private: StoredDataset) -> StoredDataset:
        unlike = StoredDataset(**{**vars(private), "account_id": "another"})
        return check(database, tenant_id, dataset_id, unlike)

    patch.setattr(pricing, "check_public_data", apart)


PLANTS = (
    Plant("a private data set taken for a public one", "R53", any_data_set_is_public),
    Plant("private images declared public at a second upload", "R53", private_images_are_declared_public),
    Plant("a worker that trusts the request's public data", "R53", the_worker_trusts_the_request),
    Plant("public images that are private, too", "R53", public_images_may_be_private_too),
)
