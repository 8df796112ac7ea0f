"""Report of a job, and the proof of what it cost."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from fastapi import Query, Request, Response

from api.deps import Caller, Services, ServicesDep
from api.openapi.document import file_content, problems
from api.released_jobs import Released, download_router, stored_file
from api.security.permissions import check_may_see_private
from datalens_service.errors import NotFound
from datalens_service.evaluation.report import document
from datalens_service.proof.job_proof import PROOF_FILE
from datalens_service.store.jobs.jobs import Job

router = download_router()


class Audience(StrEnum):
    """For whom a report is."""

    OWNER = "owner"
    RELEASABLE = "releasable"


class ReportFormat(StrEnum):
    """Format of a report."""

    JSON = "json"
    HTML = "html"


_REPORT_NAMES: Final = {Audience.OWNER: "report", Audience.RELEASABLE: "report-releasable"}


@router.get(
    "/report",
    operation_id="getJobReport",
    summary="Read the report of a job",
    responses={**file_content("The report.", "application/json", "text/html"), **problems("report-incomplete")},
)
def get_report(
    job: Released,
    request: Request,
    services: ServicesDep,
    key: Caller,
    audience: Annotated[
        Audience,
        Query(
            description="- `owner`: everything, including numbers the guarantee does not cover: not to be passed on"
            "\n- `releasable`: only what may be published"
        ),
    ] = Audience.OWNER,
    format: Annotated[
        ReportFormat, Query(description="- `json`: for programs\n- `html`: for people")
    ] = ReportFormat.JSON,
) -> Response:
    """Each number says whether the guarantee covers it, it is public, or it is for the owner alone.

    While the evaluation goes on, the report states only what the job cost.

    A report that lacks a required field is not handed out, in neither format; `docs/privacy-report.schema.json` has
    them all.
    """
    if audience is Audience.OWNER:
        check_may_see_private(key)
    _check_complete(services, job, _REPORT_NAMES[audience])
    name = f"{_REPORT_NAMES[audience]}.{format}"
    return stored_file(request, services, job, name, inline=True, private=audience is Audience.OWNER)


@router.get(
    "/bundle",
    operation_id="getJobBundle",
    summary="Download the proof of what a job cost",
    responses=file_content("What `datalens verify` reads.", "application/json"),
)
def get_bundle(job: Released, request: Request, services: ServicesDep) -> Response:
    """Card, mechanisms and the charges of this job; from it anybody recomputes ε. Free to publish.

    The journal of the whole account is for the owner: `account-proof.json` among the files of the job.
    """
    return stored_file(request, services, job, PROOF_FILE)


def _check_complete(services: Services, job: Job, name: str) -> None:
    """Refuse a report whose JSON lacks a field; the page is made from the same view.

    Raises:
        ReportIncomplete: It does, or was changed after it was written.
        NotFound: There is none.
    """
    try:
        document.check(services.artifacts.get(job.id, f"{name}.json").path.read_bytes())
    except FileNotFoundError:
        raise NotFound("The file was removed.") from None
