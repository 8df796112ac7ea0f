"""Pages of datasets: list, upload, budget and journal. Every change is a request to `/v1`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from datalens_service.api.deps import After, ObjectId, Services, ServicesDep
from datalens_service.api.pages.views import journal
from datalens_service.api.pages.views.attacks import found_on_dataset
from datalens_service.api.pages.views.facts import dataset_facts, job_rows
from datalens_service.api.pages.views.rendering import PageRoute, Visitor, VisitorDep
from datalens_service.api.schemas.common import DatasetRead
from datalens_service.api.schemas.datasets import ValidationRead
from datalens_service.api.security.permissions import check_scope, may_see_persons
from datalens_service.data.intake.readers import READERS, usual_suffixes
from datalens_service.data.intake.reading_choices import Encoding
from datalens_service.proof.spenders import Actor
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.store.access.roles import Scope
from datalens_service.store.datasets import datasets, uploads, views
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.ledger import journal_pages
from datalens_service.store.ledger.journal_pages import JournalLine, read_spenders
from datalens_service.store.schema.tables import LARGEST_UNITS

_RECENT: Final = 6
_PAGE_SIZE: Final = 25
_PAYERS: Final = 100
_KEPT: Final = frozenset(DatasetState) - {DatasetState.DELETED}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def show_datasets(
    visitor: VisitorDep,
    services: ServicesDep,
    after: After = None,
    search: Annotated[str, Query(max_length=200)] = "",
    state: DatasetState | Literal[""] = "",
) -> Response:
    """Show all datasets that are not deleted, or those that the filters leave, and the newest jobs."""
    datasets_page = views.list_views(
        services.database,
        visitor.tenant_id,
        limit=_PAGE_SIZE,
        cursor=after,
        search=search.strip() or None,
        states=[DatasetState(state)] if state else _KEPT,
    )
    recent = jobs.list_jobs(services.database, JobFilter(tenant_id=visitor.tenant_id), limit=_RECENT).items
    return visitor.page(
        "overview",
        datasets=_cards(services, visitor, datasets_page.items),
        next_cursor=datasets_page.next_cursor,
        first_page=after is None,
        filtered=bool(search or state),
        any_deleted=_has_deleted(services, visitor),
        search=search,
        state=state,
        jobs=job_rows(services, visitor.key, recent),
    )


def _has_deleted(services: Services, visitor: Visitor) -> bool:
    deleted = views.list_views(services.database, visitor.tenant_id, limit=1, states=[DatasetState.DELETED])
    return bool(deleted.items)


@router.get("/datasets/new")
def show_upload_form(visitor: VisitorDep, services: ServicesDep) -> Response:
    newest = datasets.list_datasets(services.database, limit=_PAYERS, tenant_id=visitor.tenant_id).items
    formats, suffixes = list(READERS.values()), usual_suffixes()
    return visitor.page(
        "upload",
        limit=services.settings.max_upload_bytes,
        payers=sorted(newest, key=lambda dataset: dataset.state is DatasetState.DELETED),
        formats=formats,
        suffixes=suffixes,
        encodings=get_args(Encoding)[1:],
    )


@router.get("/datasets/{dataset_id}")
def show_dataset(
    dataset_id: ObjectId,
    visitor: VisitorDep,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_UNITS)] = None,
) -> Response:
    """A dataset, its budget, its jobs and a page of the journal of its account; a receipt once it was deleted."""
    dataset = views.get(services.database, dataset_id).contents
    if dataset is None:
        return _validation_page(visitor, services, dataset_id)
    with services.database.session() as session:
        portion = journal_pages.read_slice(session, dataset_id, before, journal.MOST_ENTRIES)
        spenders = _name_spenders(session, visitor, portion.lines)
        deleted = dataset.state is DatasetState.DELETED
        deletion = journal_pages.read_deletion(session, dataset_id) if deleted else None
    shown = dataset_facts(services, dataset)[dataset_id]
    listed = jobs.list_jobs(services.database, JobFilter(dataset_id=dataset_id), limit=_PAGE_SIZE)
    return visitor.page(
        "dataset",
        **shown,
        jobs=job_rows(services, visitor.key, listed.items),
        ledger=journal.build_table(portion, shown["dataset"].privacy.delta),
        spenders=spenders,
        deletion=deletion,
        attacks=found_on_dataset(services, visitor, dataset_id),
        linked=datasets.linked(services.database, dataset_id),
        joined=uploads.joined(services.database, [dataset_id]).get(dataset_id)
        if Scope.DATASETS_WRITE in visitor.key.scopes
        else None,
    )


def _name_spenders(session: Session, visitor: Visitor, lines: Sequence[JournalLine]) -> dict[str, Actor | None] | None:
    """Return who submitted the jobs of a journal, by their ids; None for visitors who may not know."""
    if not may_see_persons(visitor.key):
        return None
    return {one.job_id: one.submitted_by for one in read_spenders(session, (line.job_id for line in lines))}


def _validation_page(visitor: Visitor, services: Services, dataset_id: str) -> Response:
    """An upload that is being read, waits for its confirmation, or of which nothing became."""
    check_scope(visitor.key, Scope.DATASETS_WRITE)
    validation = uploads.get(services.database, dataset_id)
    if validation.report is not None:
        visitor.note(services, "seeDataset", dataset_id)
    shown = ValidationRead.from_upload(validation)
    name = DatasetView.from_upload(validation).name
    return visitor.page("validation", validation=shown, name=name, declared=DatasetForm.model_validate(validation.form))


def _cards(services: Services, visitor: Visitor, uploads: Sequence[DatasetView]) -> list[dict[str, Any]]:
    """A budget that several data sets share is shown once, to those who may know that they share it."""
    facts = dataset_facts(services, *(upload.contents for upload in uploads if upload.contents is not None))
    payers: dict[str, DatasetView] = {}
    may_know = Scope.DATASETS_WRITE in visitor.key.scopes
    cards = []
    for upload in uploads:
        payer = upload
        if may_know and upload.contents is not None and upload.state is DatasetState.READY:
            payer = payers.setdefault(upload.contents.account_id, upload)
        card = facts.get(upload.id) or {"dataset": DatasetRead.from_view(upload, None), "gauge": None}
        cards.append(card | {"shares": None if payer is upload else payer})
    return cards
