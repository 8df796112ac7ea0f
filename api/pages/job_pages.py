"""Pages of jobs and audits: list, progress, comparison and report. Every change is a request to `/v1`."""

from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints

from datalens_service.api.deps import After, ObjectId, Services, ServicesDep
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.pages.views import attacks, facts, formatting
from datalens_service.api.pages.views.attacks import found_on_job
from datalens_service.api.pages.views.comparison import compare_figures, compare_parameters, judge_sides, load_side
from datalens_service.api.pages.views.facts import job_rows
from datalens_service.api.pages.views.quality import accuracies_of_jobs, quality_of_job, read_confusion, read_figures
from datalens_service.api.pages.views.rendering import PageRoute, Visitor, VisitorDep
from datalens_service.api.schemas.common import BudgetRead
from datalens_service.api.schemas.jobs import EventRead, JobRead
from datalens_service.api.security.permissions import check_scope, show_submitter
from datalens_service.base.errors import InvalidInput, NotFound, StateConflict
from datalens_service.data.export import WRITERS
from datalens_service.data.export.licence import LICENCES
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.report.verdict import judge
from datalens_service.services import pricing
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.pricing import JobPrivacy
from datalens_service.services.releases import Release, read_release
from datalens_service.services.waiting import explain_waiting
from datalens_service.spec import PlanSummary
from datalens_service.store.access import keys, tenants
from datalens_service.store.access.roles import Scope
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.jobs import approvals, audits, events, jobs, released_models
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import account_summary

_PAGE_SIZE: Final = 25
_DATASETS_OFFERED: Final = 100
_PAIR: Final = 2
_HOW: Final = "Tick exactly two in the list of jobs, then press “Compare two ticked jobs” below it."
JobId = Annotated[str, StringConstraints(max_length=64, pattern=IDENTIFIER)]
Chosen = Annotated[list[JobId], Query(max_length=100, default_factory=list)]

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/jobs")
def show_jobs(
    visitor: VisitorDep,
    services: ServicesDep,
    after: After = None,
    state: JobState | Literal[""] = "",
    method: Annotated[str, Query(max_length=100)] = "",
    dataset: Annotated[str, Query(max_length=64)] = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show all jobs, or those that the filters leave."""
    which = JobFilter(
        tenant_id=visitor.tenant_id,
        dataset_id=dataset or None,
        state=state or None,
        method=method or None,
        search=search.strip() or None,
    )
    jobs_page = jobs.list_jobs(services.database, which, limit=_PAGE_SIZE, cursor=after)
    offered = datasets.list_datasets(services.database, limit=_DATASETS_OFFERED, tenant_id=visitor.tenant_id)
    return visitor.page(
        "jobs",
        jobs=job_rows(services, visitor.key, jobs_page.items),
        accuracies=accuracies_of_jobs(services, visitor, jobs_page.items),
        next_cursor=jobs_page.next_cursor,
        first_page=after is None,
        filtered=bool(state or method or dataset or search),
        state=state,
        method=method,
        methods=sorted(kind.model_fields["name"].default for kind in get_args(RegisteredMethod)),
        dataset=dataset,
        search=search,
        datasets=[one for one in offered.items if one.state is DatasetState.READY or one.id == dataset],
    )


@router.get("/jobs/compare")
def show_job_comparison(visitor: VisitorDep, services: ServicesDep, job: Chosen) -> Response:
    """Samples, figures and parameters of two jobs.

    Raises:
        InvalidInput: Not exactly two jobs are named.
    """
    _check_chosen(services, visitor, set(job))
    first, second = (load_side(services, visitor, job_id) for job_id in dict.fromkeys(job))
    return visitor.page(
        "comparison",
        sides=(first, second),
        verdict=judge_sides(first, second),
        figures=compare_figures(first, second),
        parameters=compare_parameters(first, second),
    )


@router.get("/jobs/{job_id}")
def show_job(job_id: ObjectId, visitor: VisitorDep, services: ServicesDep) -> Response:
    """A job: where it stands, what it spent, what it made."""
    job = jobs.get(services.database, job_id)
    shown = _job_facts(services, visitor, job)
    figures = read_figures(services, visitor, job)
    return visitor.page(
        "job",
        **shown,
        **_about_approval(services, visitor, job),
        verdict=None if figures is None else judge(figures),
        events=_events(services, job),
        phase_titles=facts.TITLES,
        quality=quality_of_job(services, visitor, job, shown["dataset"].schema),
        confusion=read_confusion(services, visitor, job),
        attacks=found_on_job(services, visitor, job),
    )


@router.get("/jobs/{job_id}/samples.png")
def show_job_samples(
    job_id: ObjectId,
    request: Request,
    visitor: VisitorDep,
    services: ServicesDep,
    made: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The sample grid of a job that may still run; `made` tells a browser that it is another one than it keeps."""
    check_scope(visitor.key, Scope.RELEASES_READ)
    artifact = services.artifacts.releasable(job_id, "samples.png")
    return file_response(
        request, artifact.path, artifact.sha256, media_type=artifact.media_type, name=artifact.name, inline=True
    )


@router.get("/jobs/{job_id}/report")
def show_job_report(
    job_id: ObjectId,
    visitor: VisitorDep,
    services: ServicesDep,
    audience: Annotated[str, Query(pattern="^(owner|releasable)$")] = "releasable",
) -> Response:
    """The report of a job whose images are ready, framed by the way back."""
    job = jobs.get(services.database, job_id)
    if job.released_at is None:
        raise StateConflict(f"There is no report: the job is {job.state} and its images are not ready.")
    dataset = datasets.get(services.database, job.dataset_id)
    return visitor.page("report", job=JobRead.from_job(job), dataset=dataset, audience=audience)


def _events(services: Services, job: Job) -> list[EventRead]:
    delta, slack = float(job.price["delta"]), int(job.price.get("slack", 0))
    return [EventRead.from_event(event, delta, slack) for event in events.list_milestones(services.database, job.id)]


def _job_facts(services: Services, visitor: Visitor, job: Job) -> dict[str, Any]:
    dataset = datasets.get(services.database, job.dataset_id)
    with services.database.session() as session:
        account = account_summary.summarize_account(session, dataset.id)
    price = PlanSummary.model_validate(job.price)
    files, public = services.artifacts.list_artifacts(job.id), job.spec.get("public_data")
    reasons = explain_waiting(services.database, services.surroundings.faults, [job])
    return {
        "job": JobRead.from_job(job, reasons.get(job.id), show_submitter(job, visitor.key)),
        "guarantee": JobPrivacy.from_job(job, price.about(dataset.schema)).guarantee,
        "made": job.result,
        "public_images": public and pricing.describe_public_data(datasets.get(services.database, public)),
        "dataset": dataset,
        "budget": BudgetRead.from_account(account),
        "budget_gauge": facts.divide_budget(BudgetRead.from_account(account)),
        "gauge": facts.divide_job(job),
        "stages": facts.job_phases(job),
        "took": formatting.between(job.started_at, job.finished_at) if job.started_at and job.finished_at else "",
        "sizes": {file.name: file.size for file in files},
        "audiences": {file.name: file.audience for file in files},
        "previews": [file.name for file in files if file.name.startswith("preview-")],
        "digests": {file.name: file.sha256 for file in files},
        "formats": list(WRITERS.values()),
        "licences": LICENCES,
        "contact": services.settings.contact,
    }


def _about_approval(services: Services, visitor: Visitor, job: Job) -> dict[str, Any]:
    """Return what second persons decide by, for those who may decide, and who has decided."""
    reviewed = job.is_held and job.released_at is not None and Scope.RELEASES_APPROVE in visitor.key.scopes
    # Who did what is for those who may read the journal.
    named = job.decided_by if Scope.AUDIT_READ in visitor.key.scopes else None
    decider = keys.get(services.database, named).name if named else ""
    return {
        "held": job.is_held,
        "review": _read_release(services, job) if reviewed else None,
        "may_decide": approvals.may_decide(services.database, visitor.key, job),
        "decider": decider,
    }


def _read_release(services: Services, job: Job) -> Release:
    model = released_models.find(services.database, released_models.build_id(job.id, job.result or ""))
    return read_release(services.database, services.artifacts, model)


@router.get("/audits/{audit_id}")
def show_audit(audit_id: ObjectId, visitor: VisitorDep, services: ServicesDep) -> Response:
    audit = audits.get(services.database, audit_id)
    reasons = explain_waiting(services.database, services.surroundings.faults, [audit.job])
    row = attacks.find_row(audit, visitor, reasons.get(audit_id))
    result = row.audit.result
    if result is not None:
        visitor.note(services, "seeAudits", audit_id)
    return visitor.page(
        "audit",
        audit=row.audit,
        target=row.target,
        dataset=datasets.get(services.database, row.audit.dataset_id),
        verdicts=() if result is None else result.verdicts(),
        pictures=[attacks.draw(one, f"curve-{one.attack}") for one in (() if result is None else result.attacks)],
    )


def _check_chosen(services: Services, visitor: Visitor, chosen: set[str]) -> None:
    if len(chosen) != _PAIR:
        numbers = {0: "No job is", 1: "Only one job is"}
        raise InvalidInput(f"{numbers.get(len(chosen), f'{len(chosen)} jobs are')} chosen. {_HOW}")
    try:
        with services.database.connection() as connection:
            for job_id in chosen:
                tenants.check_owned(connection, visitor.tenant_id, {"job_id": job_id})
    except NotFound:
        raise NotFound(f"At least one of these two jobs is not among yours. {_HOW}") from None
