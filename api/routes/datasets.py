"""Data sets: upload, look at, delete, and the account that pays for each."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Depends, Response, status

from api import examples, intake
from api.deps import After, Limit, ObjectId, ServicesDep, caller
from api.openapi import DATASET_LINKS, form_body, ok, problems
from api.schemas import DatasetForm, DatasetRead, Page, PrivacyRead
from api.uploads import FILE_FIELD, UploadDep
from datalens_service.store import datasets, statement
from datalens_service.store.database import Database
from datalens_service.store.datasets import StoredDataset

router = APIRouter(
    prefix="/v1/datasets",
    tags=["datasets"],
    dependencies=[Depends(caller)],
    responses=problems("unauthorized", "store-unavailable", "internal-error"),
)
_FORM: Final[dict[str, Any]] = form_body(
    DatasetForm,
    FILE_FIELD,
    "NPZ with labelled images, or a zip of class folders with PNG or JPEG files.",
    examples.FORM,
)


@router.post(
    "",
    operation_id="createDataset",
    summary="Upload a labelled image set and open its privacy budget",
    status_code=status.HTTP_201_CREATED,
    response_model=DatasetRead,
    openapi_extra=_FORM,
    responses={
        **ok(201, "The data set is registered.", headers=("Location",), links=DATASET_LINKS),
        **problems(
            "invalid-input",
            "dataset-invalid",
            "invalid-spec",
            "invalid-delta",
            "state-conflict",
            "payload-too-large",
            "unsupported-media-type",
        ),
    },
)
def create_dataset(upload: UploadDep, opened: ServicesDep, response: Response) -> DatasetRead:
    """The file is checked as a whole and kept as plain arrays; the upload itself is removed.

    `epsilon` and `delta` are the budget of these records for ever: everything ever released about them is
    charged to it, and it cannot be raised. Records that were uploaded before keep the budget they have; leave
    both out then.
    """
    dataset = intake.register(opened.database, opened.settings.data_dir, upload.path, upload.form)
    response.headers["Location"] = f"/v1/datasets/{dataset.id}"
    return _read(opened.database, dataset)


@router.get(
    "",
    operation_id="listDatasets",
    summary="List data sets, newest first",
    responses={**ok(200, "A portion of the list."), **problems("invalid-input")},
)
def list_datasets(opened: ServicesDep, limit: Limit = 20, after: After = None) -> Page[DatasetRead]:
    """Deleted data sets stay in the list: what was spent on them stays spent."""
    found = datasets.list_datasets(opened.database, limit=limit, cursor=after)
    items = [_read(opened.database, dataset) for dataset in found.items]
    return Page(items=items, has_more=found.next_cursor is not None, next_cursor=found.next_cursor)


@router.get(
    "/{dataset_id}",
    operation_id="getDataset",
    summary="Read a data set and its budget",
    responses={**ok(200, "The data set."), **problems("not-found", "invalid-input")},
)
def get_dataset(dataset_id: ObjectId, opened: ServicesDep) -> DatasetRead:
    """What its owner declared public; records are never handed out."""
    return _read(opened.database, datasets.get(opened.database, dataset_id))


@router.delete(
    "/{dataset_id}",
    operation_id="deleteDataset",
    summary="Delete the records of a data set",
    status_code=status.HTTP_204_NO_CONTENT,
    responses={
        204: {"description": "The records and the owner's reports are gone."},
        **problems("not-found", "state-conflict", "invalid-input"),
    },
)
def delete_dataset(dataset_id: ObjectId, opened: ServicesDep) -> None:
    """Records, partition key and the owner's reports go; account and releases stay, as what was spent stays spent."""
    intake.remove(opened.database, opened.artifacts, dataset_id)


@router.get(
    "/{dataset_id}/privacy",
    operation_id="getDatasetPrivacy",
    summary="Read the privacy account of a data set with its journal",
    responses={**ok(200, "The account."), **problems("not-found", "invalid-input")},
)
def get_dataset_privacy(dataset_id: ObjectId, opened: ServicesDep) -> PrivacyRead:
    """Every entry seals the one before it by SHA-256, so that a copy shows whether it was rewritten later."""
    with opened.database.session() as session:
        account = statement.statement(session, dataset_id)
        entries = statement.entries(session, dataset_id)
    return PrivacyRead.with_journal(account, list(datasets.linked(opened.database, dataset_id)), entries)


def _read(database: Database, dataset: StoredDataset) -> DatasetRead:
    with database.session() as session:
        return DatasetRead.of(dataset, statement.statement(session, dataset.id))
