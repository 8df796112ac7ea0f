"""The pages: data sets, planning a job, jobs, reports. They show; what changes something goes to `/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import uuid4

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse

from api.dashboard import budget_breakdown, formatting, journal, phases
from api.dashboard.confusion import Confusion, read_confusion
from api.dashboard.planning import CHOICES, PlanForm
from api.dashboard.rendering import PageRoute, page
from api.deps import After, ObjectId, Services, ServicesDep, caller
from api.http.file_responses import file_response
from api.schemas.common import BudgetRead, DatasetRead, PlanRead
from api.schemas.datasets import ValidationRead
from api.schemas.jobs import JobRead
from api.security.browser_sessions import resume_session
from api.security.permissions import check_scope
from datalens_service.data.export import WRITERS
from datalens_service.data.readers import READERS, usual_suffixes
from datalens_service.errors import DatalensError, NotFound, StateConflict
from datalens_service.services import pricing
from datalens_service.spec import TrainingSpec
from datalens_service.store.access import access_log, tenants
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import Scope
from datalens_service.store.datasets import datasets, validations, views
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import CLASSIFIER
from datalens_service.store.ledger import account_summary

_RECENT: Final = 6
_PAGE_SIZE: Final = 25
_PAYERS: Final = 100

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class Visitor:
    """Somebody who has signed in, looking at a page.

    Attributes:
        request: Of the page.
        session: Of their browser.
        key: That they signed in with; checked as for every request of the API.
    """

    request: Request
    session: BrowserSession
    key: ApiKey

    @property
    def tenant_id(self) -> str:
        """Whose objects they see."""
        return self.key.tenant_id

    def page(self, template: str, **facts: Any) -> HTMLResponse:
        """A page for them."""
        return page(self.request, template, self.session, **facts)


def visitor(request: Request, services: ServicesDep, key: Annotated[ApiKey, Depends(caller)]) -> Visitor:
    """Who looks at the page.

    Raises:
        Unauthorized: Nobody has signed in.
        Forbidden: The key lacks the scope of the page.
        NotFound: The page is about an object of another tenant.
    """
    return Visitor(request, resume_session(request, services.database), key)


VisitorDep = Annotated[Visitor, Depends(visitor)]


@router.get("/", operation_id="showDatasets")
def overview(who: VisitorDep, services: ServicesDep, after: After = None) -> Response:
    """All data sets, and the newest jobs."""
    datasets_page = views.list_views(services.database, who.tenant_id, limit=_PAGE_SIZE, cursor=after)
    recent = jobs.list_jobs(services.database, limit=_RECENT, tenant_id=who.tenant_id).items
    return who.page(
        "overview",
        datasets=[_card(services, dataset) for dataset in datasets_page.items],
        next_cursor=datasets_page.next_cursor,
        first_page=after is None,
        jobs=_listed(services, recent),
    )


@router.get("/datasets/new", operation_id="showUploadForm")
def upload_page(who: VisitorDep, services: ServicesDep) -> Response:
    """The form of an upload."""
    newest = datasets.list_datasets(services.database, limit=_PAYERS, tenant_id=who.tenant_id).items
    formats, suffixes = list(READERS.values()), usual_suffixes()
    return who.page(
        "upload", limit=services.settings.max_upload_bytes, payers=newest, formats=formats, suffixes=suffixes
    )


@router.get("/datasets/{dataset_id}", operation_id="showDataset")
def dataset_page(dataset_id: ObjectId, who: VisitorDep, services: ServicesDep) -> Response:
    """A data set, its budget, its jobs and the journal of its account; a receipt once it was deleted."""
    try:
        dataset = datasets.get(services.database, dataset_id)
    except NotFound:
        return _validation_page(who, services, dataset_id)
    with services.database.session() as session:
        entries = account_summary.entries(session, dataset_id)
    shown = _shown(services, dataset)
    return who.page(
        "dataset",
        **shown,
        jobs=_listed(services, jobs.list_jobs(services.database, dataset_id=dataset_id, limit=_PAGE_SIZE).items),
        rows=journal.rows(entries, shown["dataset"].privacy.delta),
        linked=datasets.linked(services.database, dataset_id),
        joined=validations.joined(services.database, dataset_id) if Scope.DATASETS_WRITE in who.key.scopes else None,
    )


def _validation_page(who: Visitor, services: Services, dataset_id: str) -> Response:
    """An upload that is being read, or of which nothing became."""
    check_scope(who.key, Scope.DATASETS_WRITE)
    validation = validations.get(services.database, dataset_id)
    if validation.report is not None:
        _note(services, who, dataset_id)
    shown = ValidationRead.of(validation)
    return who.page("validation", validation=shown, name=DatasetView.from_validation(validation).name)


@router.get("/datasets/{dataset_id}/new-job", operation_id="showPlanForm")
def plan_page(
    dataset_id: ObjectId,
    who: VisitorDep,
    services: ServicesDep,
    like: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """The form of a job, as somebody begins who knows nothing yet, or as another job was."""
    shown = _shown(services, _ready(services, dataset_id))
    form = PlanForm.first(shown["dataset"].privacy)
    if like is not None:
        with services.database.connection() as connection:
            tenants.check_owned(connection, who.tenant_id, {"job_id": like})
        form = PlanForm.repeating(TrainingSpec.model_validate(jobs.get(services.database, like).spec))
    return who.page("plan", **shown, form=form, like=like, choices=CHOICES)


@router.post("/datasets/{dataset_id}/plan", operation_id="showPlan")
def plan_part(
    dataset_id: ObjectId, filled: Annotated[dict[str, Any], Body()], who: VisitorDep, services: ServicesDep
) -> Response:
    """What the form costs, as a part of its page, with the very request that the button sends."""
    dataset = _ready(services, dataset_id)
    try:
        training_request = PlanForm.filled(filled).request(dataset_id, dataset.schema)
        quote = pricing.quote(services.database, who.tenant_id, dataset_id, training_request.spec)
    except DatalensError as error:
        return who.page("parts/plan_refused", detail=error.detail)
    plan = PlanRead.from_quote(quote)
    return who.page(
        "parts/plan_cost",
        plan=plan,
        gauge=budget_breakdown.of_budget(plan.budget, plan.cost.units),
        training_request=training_request,
        # One key per price: pressing twice submits once.
        idempotency_key=str(uuid4()),
    )


@router.get("/jobs", operation_id="showJobs")
def jobs_page(who: VisitorDep, services: ServicesDep, after: After = None) -> Response:
    """All jobs."""
    jobs_page = jobs.list_jobs(services.database, limit=_PAGE_SIZE, cursor=after, tenant_id=who.tenant_id)
    return who.page(
        "jobs", jobs=_listed(services, jobs_page.items), next_cursor=jobs_page.next_cursor, first_page=after is None
    )


@router.get("/jobs/{job_id}", operation_id="showJob")
def job_page(job_id: ObjectId, who: VisitorDep, services: ServicesDep) -> Response:
    """A job: where it stands, what it spent, what it made."""
    job = jobs.get(services.database, job_id)
    return who.page("job", **_job_facts(services, job), confusion=_confusion(services, who, job))


@router.get("/jobs/{job_id}/samples.png", operation_id="showJobSamples")
def samples_so_far(job_id: ObjectId, request: Request, who: VisitorDep, services: ServicesDep) -> Response:
    """The sample grid of a job that may still run."""
    check_scope(who.key, Scope.RELEASES_READ)
    artifact = services.artifacts.releasable(job_id, "samples.png")
    return file_response(
        request, artifact.path, artifact.sha256, media_type=artifact.media_type, name=artifact.name, inline=True
    )


@router.get("/jobs/{job_id}/report", operation_id="showJobReport")
def report_page(
    job_id: ObjectId,
    who: VisitorDep,
    services: ServicesDep,
    audience: Annotated[str, Query(pattern="^(owner|releasable)$")] = "releasable",
) -> Response:
    """The report of a job whose images are ready, framed by the way back."""
    job = jobs.get(services.database, job_id)
    if job.released_at is None:
        raise StateConflict(f"There is no report: the job is {job.state} and its images are not ready.")
    dataset = datasets.get(services.database, job.dataset_id)
    return who.page("report", job=JobRead.of(job), dataset=dataset, audience=audience)


@router.get("/keys", operation_id="showApiKeys")
def keys_page(who: VisitorDep) -> Response:
    """Keys; the page fetches them itself, as it also makes and revokes them."""
    return who.page("keys")


def _ready(services: Services, dataset_id: str) -> StoredDataset:
    dataset = datasets.get(services.database, dataset_id)
    if dataset.state is DatasetState.DELETED:
        raise StateConflict("The records of this data set were deleted, so no job can train on it.")
    return dataset


def _card(services: Services, upload: DatasetView) -> dict[str, Any]:
    if upload.contents is None:
        return {"dataset": DatasetRead.of(upload, None), "gauge": None}
    return _shown(services, upload.contents)


def _note(services: Services, who: Visitor, dataset_id: str) -> None:
    """That somebody saw what depends on the records, before they see it."""
    access_log.note(
        services.database, who.tenant_id, actor=who.key.id, action="seeDataset", object_id=dataset_id, outcome=200
    )


def _shown(services: Services, dataset: StoredDataset) -> dict[str, Any]:
    """A data set with its gauge."""
    with services.database.session() as session:
        account = account_summary.statement(session, dataset.id)
    return {
        "dataset": DatasetRead.of(DatasetView.from_dataset(dataset), account),
        "gauge": budget_breakdown.of_budget(BudgetRead.of(account)),
    }


def _listed(services: Services, listed: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Jobs with the names of their data sets."""
    names = {job.dataset_id for job in listed}
    named = {name: datasets.get(services.database, name).name for name in names}
    return [{"job": JobRead.of(job), "name": named[job.dataset_id], "stages": phases.stages(job)} for job in listed]


def _confusion(services: Services, who: Visitor, job: Job) -> Confusion | None:
    """The table of a classifier, for the owner alone."""
    if job.released_at is None or Scope.REPORTS_READ not in who.key.scopes:
        return None
    if TrainingSpec.model_validate(job.spec).method.result != CLASSIFIER:
        return None
    table = read_confusion(services.artifacts, job.id)
    if table is not None:
        access_log.note(
            services.database, who.tenant_id, actor=who.key.id, action="seeConfusion", object_id=job.id, outcome=200
        )
    return table


def _job_facts(services: Services, job: Job) -> dict[str, Any]:
    dataset = datasets.get(services.database, job.dataset_id)
    with services.database.session() as session:
        account = account_summary.statement(session, dataset.id)
    files = services.artifacts.list_artifacts(job.id)
    return {
        "job": JobRead.of(job),
        "made": TrainingSpec.model_validate(job.spec).method.result,
        "dataset": dataset,
        "budget": BudgetRead.of(account),
        "budget_gauge": budget_breakdown.of_budget(BudgetRead.of(account)),
        "gauge": budget_breakdown.of_job(job),
        "stages": phases.stages(job),
        "took": formatting.between(job.started_at, job.finished_at) if job.started_at and job.finished_at else "",
        "sizes": {file.name: file.size for file in files},
        "audiences": {file.name: file.audience for file in files},
        "digests": {file.name: file.sha256 for file in files},
        "formats": list(WRITERS.values()),
    }
