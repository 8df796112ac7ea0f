"""Bugs by which private images would teach a model as if they were public."""

from typing import Any

import pytest

from datalens_service.jobs import execute
from datalens_service.services import pricing
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset

from .plant import around, replaces


@around("a private data set taken for a public one", "R53", pricing, "check_public_data")
def any_data_set_is_public(check, database, tenant_id, dataset_id, private):
    """Only size and state are looked at."""
    read = datasets.read

    def as_public(session: Any, identifier: str) -> StoredDataset:
        row = read(session, identifier)
        object.__setattr__(row, "schema", row.schema.model_copy(update={"records_are_public": True}))
        return row

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(datasets, "read", as_public)
        return check(database, tenant_id, dataset_id, private)


@replaces("private images declared public at a second upload", "R53", datasets, "_check_none_is_private")
def private_images_are_declared_public(session, known):
    """Nobody asks whether an upload holds images that came as private ones."""


@replaces("a worker that trusts the request's public data", "R53", execute, "_public")
def the_worker_trusts_the_request(database, dataset_id, job):
    """What was checked when the job was submitted is not checked again."""
    return datasets.get(database, dataset_id)


@around("public images that are private, too", "R53", pricing, "check_public_data")
def public_images_may_be_private_too(check, database, tenant_id, dataset_id, private):
    """Accounts are not compared: an image of both sets reaches the model without noise."""
    unlike = StoredDataset(**{**vars(private), "account_id": "another"})
    return check(database, tenant_id, dataset_id, unlike)
