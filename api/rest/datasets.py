"""Datasets: upload, look at, delete, and the account that pays for each."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Response, status

from datalens_service.api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import Responses, form_body, ok, private_picture, problems
from datalens_service.api.problems.handlers import PRIVATE
from datalens_service.api.schemas.common import DatasetRead, Page, PrivacyRead
from datalens_service.api.schemas.datasets import DatasetRequest, DeletionReceipt, UploadedDataset, ValidationRead
from datalens_service.api.uploads.receiver import FILE_FIELD, ReceivedFile, UploadDep
from datalens_service.base.errors import StateConflict
from datalens_service.data.export.png import encode_private_png, grid
from datalens_service.data.intake.readers import READERS
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.services import ingestion, removal
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import Scope
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, uploads, views
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.private_modes import private_umask
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger import account_summary, journal_pages

PRIVATE_READS = ("pictures of the upload",)

router = APIRouter(route_class=StrictRoute, prefix="/v1/datasets", tags=["datasets"])
_RETRY_SECONDS: Final = 2
_FORM: Final[dict[str, Any]] = form_body(
    DatasetForm,
    FILE_FIELD,
    f"One of: {'; '.join(reader.title for reader in READERS.values())}. Contents decide the format.",
    examples.FORM,
)
_CREATED: Final[Responses] = {
    **ok(
        201,
        "The class names are confirmed and the dataset is registered.",
        "invalid-input",
        "dataset-invalid",
        "persons-in-both-splits",
        "invalid-spec",
        "invalid-delta",
        "not-found",
        "state-conflict",
        "payload-too-large",
        "unsupported-media-type",
        "store-unavailable",
        "insufficient-storage",
        "quota-exceeded",
        headers=("Location",),
        made="dataset_id",
    ),
    202: ok(
        202,
        "The upload waits for confirmation or is being read; look again later.",
        headers=("Location", "Retry-After"),
        made="dataset_id",
    )[202]
    | {"model": UploadedDataset},
}


@router.post(
    "",
    summary="Upload a labelled image set, for its class names to be confirmed",
    response_model=UploadedDataset,
    openapi_extra=_FORM,
    responses=_CREATED,
)
def create_dataset(upload: UploadDep, services: ServicesDep, key: Caller, response: Response) -> UploadedDataset:
    """The file is checked as a whole before the answer.

    It is read by a confined process, kept as plain arrays, and then removed. Its class names become public with its
    budget: at once with `confirm_classes`, or if `class_names` declares them. Else the upload is in state `review`,
    says there what to look at, and waits for `:confirm`; until then nothing is charged, published, or compared with
    other uploads.

    `epsilon` and `delta` are the budget of these records for ever: everything ever released about them is charged to
    it, and only their owner may raise it, on the record. Records that were uploaded before keep the budget they have:
    leave ε out then, and name its δ if it is not the default. `joined` in the answer says that it happened, and which
    account pays. `shares_budget_with` names a dataset whose budget pays for this one, too: for data that grows.
    `notices` are for the owner.
    """
    if isinstance(upload, DatasetRequest):
        # Clients of 1.0 send it here.
        return create_dataset_from_upload(upload, services, key, response)
    return _answer(_read(upload, services, key), services, response)


@router.post(
    ":from-upload",
    summary="Make a dataset from an upload that came in chunks",
    response_model=UploadedDataset,
    responses=_CREATED,
)
def create_dataset_from_upload(
    request: Annotated[DatasetRequest, Body(openapi_examples=examples.DATASET_REQUESTS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> UploadedDataset:
    """The answer comes before the file is read; all else is as for a file in the request."""
    return _answer(_begun(request, services, key), services, response)


def _answer(dataset_id: str, services: Services, response: Response) -> UploadedDataset:
    """Show what became of an upload, with the status and the headers that go with it."""
    response.headers.update(PRIVATE)
    dataset = read_uploaded(services, dataset_id)
    if dataset.state is not DatasetState.READY:
        response.status_code = status.HTTP_202_ACCEPTED
    if dataset.state is DatasetState.VALIDATING:
        response.headers["Retry-After"] = str(_RETRY_SECONDS)
    response.headers["Location"] = f"/v1/datasets/{dataset.id}"
    return dataset


@router.get("", summary="List datasets, newest first", responses=ok(200, "A page of the list."))
def list_datasets(
    services: ServicesDep,
    key: Caller,
    limit: Limit = 20,
    after: After = None,
    search: Annotated[
        str | None, Query(max_length=200, description="Only datasets with this in their name, or as a tag.")
    ] = None,
) -> Page[DatasetRead]:
    """Uploads are in it from the start; deleted datasets stay: what was spent on them stays spent."""
    page = views.list_views(services.database, key.tenant_id, limit=limit, cursor=after, search=search)
    return Page.build(page, _shown(services.database, page.items, key))


@router.get("/{dataset_id}", summary="Read a dataset and its budget", responses=ok(200, "The dataset."))
def get_dataset(dataset_id: ObjectId, services: ServicesDep, key: Caller) -> DatasetRead:
    """The answer has what the owner declared public; records are never handed out. `joined` is for the owner alone."""
    return _shown(services.database, [views.get(services.database, dataset_id)], key)[0]


@router.get(
    "/{dataset_id}/validation",
    summary="Read the result of an upload, for its owner",
    responses=ok(200, "Private: counts, or the faults."),
)
def get_dataset_validation(dataset_id: ObjectId, services: ServicesDep, response: Response) -> ValidationRead:
    """Counts of records and duplicates, or the files that cannot be used, by name. Deleted with the data."""
    response.headers.update(PRIVATE)
    return ValidationRead.from_upload(uploads.get(services.database, dataset_id))


@router.get(
    "/{dataset_id}/preview",
    summary="See some of the private records, for their owner",
    response_class=Response,
    responses={**private_picture("Private records, one class per row."), **problems("state-conflict")},
)
def get_dataset_preview(dataset_id: ObjectId, services: ServicesDep) -> Response:
    """The first records of each class as one PNG, marked as private. Not to be passed on, and never in a release."""
    dataset = datasets.get(services.database, dataset_id)
    if dataset.state is not DatasetState.READY:
        raise StateConflict(f"There is nothing to see: the data set is {dataset.state}.")
    with private_umask(), TemporaryDirectory(prefix="preview-", dir=services.settings.data_dir) as scratch:
        folder = RecordStore(services.settings).fetch(dataset.records_path, Path(scratch) / "records")
        records = load_dataset(folder)
        picture = encode_private_png(grid(records.train.images, records.train.labels, records.schema))
    return Response(picture, media_type="image/png", headers=PRIVATE)


@router.delete(
    "/{dataset_id}", summary="Delete the records of a dataset", responses=ok(200, "The receipt.", "state-conflict")
)
def delete_dataset(dataset_id: ObjectId, services: ServicesDep) -> DeletionReceipt:
    """Records, partition key and the owner's reports go; account, fingerprints of the images and releases stay."""
    removed = removal.remove_dataset(services.database, services.artifacts, services.settings, dataset_id)
    if removed.contents is None:
        return DeletionReceipt.from_view(removed, None)
    with services.database.session() as session:
        return DeletionReceipt.from_view(removed, journal_pages.read_deletion(session, dataset_id))


@router.get(
    "/{dataset_id}/privacy",
    summary="Read the privacy account of a dataset",
    responses=ok(200, "The account.", "state-conflict"),
)
def get_dataset_privacy(dataset_id: ObjectId, services: ServicesDep) -> PrivacyRead:
    """Its journal may be long and is behind `links.entries`. Every entry seals the one before it by SHA-256, so that
    whoever has noted `head_hash` sees whether it was rewritten later.
    """
    with services.database.session() as session:
        account = account_summary.summarize_account(session, dataset_id)
    return PrivacyRead.with_head(account, dataset_id, list(datasets.linked(services.database, dataset_id)))


def _begun(request: DatasetRequest, services: Services, caller: ApiKey) -> str:
    """A finished upload is going to be read; its id."""
    form = request.form.model_dump(mode="json", exclude_none=True)
    with services.database.connection() as connection:
        tenants.check_owned(connection, caller.tenant_id, {"upload_id": request.upload_id})
    check_own_account(services, caller.tenant_id, request.shares_budget_with)
    begun = uploads.begin(services.database, caller.id, request.upload_id, form)
    services.validator.submitted()
    return begun.dataset_id


def _read(upload: ReceivedFile[DatasetForm], services: Services, caller: ApiKey) -> str:
    """The file of this request was read; the id of what it became."""
    check_own_account(services, caller.tenant_id, upload.form.shares_budget_with)
    form = upload.form.model_copy(update={"name": upload.form.name or upload.label})
    read = uploads.begin_request(services.database, caller.id, form.model_dump(mode="json", exclude_none=True))
    ingestion.receive(services.database, services.settings, upload.path, read)
    return read.dataset_id


def _shown(database: Database, found: Sequence[DatasetView], key: ApiKey) -> list[DatasetRead]:
    registered = [upload.id for upload in found if upload.contents is not None]
    joined = uploads.joined(database, registered) if Scope.DATASETS_WRITE in key.scopes else {}
    with database.session() as session:
        accounts = account_summary.summarize_accounts(session, registered)
    return [DatasetRead.from_view(each, accounts.get(each.id), joined.get(each.id)) for each in found]


def check_own_account(services: Services, tenant_id: str, dataset_id: str | None) -> None:
    """Refuse an upload that would share the budget of another tenant's dataset, as if that did not exist."""
    if dataset_id is not None:
        with services.database.connection() as connection:
            tenants.check_owned(connection, tenant_id, {"dataset_id": dataset_id})


def read_uploaded(services: Services, dataset_id: str) -> UploadedDataset:
    """Return an upload with what its owner alone may know of it."""
    upload, validation = views.get(services.database, dataset_id), uploads.get(services.database, dataset_id)
    if upload.contents is None:
        return UploadedDataset.from_upload(upload, None, validation)
    with services.database.session() as session:
        return UploadedDataset.from_upload(upload, account_summary.summarize_account(session, dataset_id), validation)
