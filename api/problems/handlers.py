"""Errors as RFC 9457 problem documents: one place where an exception becomes a status and a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast
from uuid import uuid4

import structlog
from fastapi import FastAPI, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from datalens_service.api.addresses import Link, address
from datalens_service.api.problems.expected_bodies import concerns_all, explain
from datalens_service.api.problems.problem_types import BY_STATUS, INTERNAL, PROBLEM_TYPES, ProblemType
from datalens_service.api.problems.request_errors import described, problem_errors
from datalens_service.base.errors import BudgetExceeded, DatalensError, InvalidInput, RateLimited, StoreUnavailable
from datalens_service.base.fields import Stated
from datalens_service.base.wording import speak, spoken
from datalens_service.data.intake.sandbox.sandbox import Refused
from datalens_service.data.intake.untrusted.validation_errors import BadFile
from datalens_service.store.disk import is_of_disk, unavailable
from datalens_service.store.ledger.account_summary import AccountFigures

MEDIA_TYPE: Final = "application/problem+json"
PRIVATE: Final = {"Cache-Control": "private, no-store", "X-Datalens-Audience": "owner"}
"""Headers of an answer for the owner of the data alone."""

_RETRY_AFTER_SECONDS: Final = 30
_KINDS: Final = {
    "/jobs": "spec",
    ":clone": "spec",
    ":release": "decision",
    ":withhold": "decision",
    "privacy:raise": "raise",
    "/datasets/{dataset_id}": "labels",
    "/jobs/{job_id}": "labels",
    "/api-keys": "key",
    "/webhooks": "webhook",
    "/releases/{release_id}": "release",
    "/releases/{release_id}/links": "link",
    "/webhooks/{webhook_id}": "webhook",
    "/audits": "audit",
    "/synthetic": "download",
    "/bundle": "download",
    "/individual-epsilon": "record",
    "/individual-epsilon:from-pixels": "record",
}
"""Kinds of requests by the end of their path."""

_log = structlog.get_logger("datalens.api")


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: Link = Field(description="URI of the problem type, relative to the host; stable behind a root path.")
    title: str = Field(description="The same for every problem of this type.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What is wrong this time and what to change.")
    instance: str = Field(description="URN of the request, to be found in the log.")
    code: str = Field(description="Last part of `type`.")
    errors: list[ProblemError] | None = Field(default=None, description="Each place of an invalid request.")
    retry_after: int | None = Field(default=None, description="Seconds to wait after too many requests.")
    budget: ProblemBudget | None = Field(default=None, description="What is left, if the budget is exceeded.")
    bad_files: list[BadFile] | None = Field(
        default=None,
        description="The first 1,000 files of a refused upload that cannot be used. Private: for the sender alone.",
    )
    bad_count: int | None = Field(
        default=None, description="Number of files of a refused upload that cannot be used. Private."
    )
    checked: int | None = Field(
        default=None, description="Number of files of a refused upload that were read. Private."
    )


class ProblemError(BaseModel):
    """One place of an invalid request."""

    in_: Literal["body", "path", "query", "header"] = Field(alias="in", description="Part of the request.")
    pointer: str = Field(description="RFC 6901 JSON pointer within it, as a fragment.")
    detail: str = Field(description="What to change.")
    code: str = Field(description="Kind of error, as pydantic calls it; stable.")


class ProblemBudget(AccountFigures):
    """The account a request does not fit into."""

    epsilon_requested: Stated


class ProblemResponse(JSONResponse):
    """Answers with a problem document (RFC 9457)."""

    media_type = MEDIA_TYPE


def install(app: FastAPI) -> None:
    """Answer every exception of `app` with a problem, without a thread: perhaps none became free."""
    app.exception_handler(DatalensError)(_deliberate)
    app.exception_handler(OSError)(_from_disk)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_from_framework)


def document(problem: ProblemType, detail: str, request_id: str, **members: Any) -> dict[str, Any]:
    """A problem document; `members` are its extensions.

    Args:
        detail: A sentence on what is wrong this time and what to change; no private value.
        members: Extension members; they cannot replace the standard ones.
    """
    return {
        **members,
        "type": address(problem.uri),
        "title": problem.title,
        "status": problem.status or INTERNAL.status,
        "detail": detail,
        "instance": f"urn:uuid:{request_id}",
        "code": problem.slug,
    }


def internal_error(request_id: str) -> ProblemResponse:
    """The answer to an exception nobody meant: it says nothing about itself."""
    return _answer(INTERNAL, speak("The service made a mistake; tell the operator ⟦trace⟧."), request_id)


def answer_withheld(error: StoreUnavailable, request_id: str) -> ProblemResponse:
    """The answer to a call that the audit journal did not take."""
    problem = PROBLEM_TYPES[error.slug]
    _log.error("problem", code=problem.slug, detail=error.detail)
    detail = (
        "The audit journal did not take this call, so its answer is withheld; "
        "look whether it took effect before you repeat it."
    )
    return _answer(problem, detail, request_id)


def from_status(status: int, request_id: str, content_range: str | None = None) -> ProblemResponse:
    """The problem that stands for a bare status of the framework.

    Args:
        content_range: Header of a 416, which has to name the length.
    """
    problem = BY_STATUS.get(status, BY_STATUS[400])
    headers = {"Content-Range": content_range} if content_range else {}
    return _answer(problem, problem.remedy, request_id, headers=headers)


async def _deliberate(request: Request, error: DatalensError) -> ProblemResponse:
    problem = PROBLEM_TYPES.get(error.slug, INTERNAL)
    if problem.status is None or problem.status >= 500:
        _log.error("problem", code=problem.slug, detail=error.detail)
    return _response(request, problem, error.detail, _members(error), _build_headers(error))


async def _from_disk(request: Request, error: OSError) -> ProblemResponse:
    """A disk that is full or fails is nobody's mistake; any other error of the operating system is one."""
    if not is_of_disk(error):
        raise error
    detail = "A disk of the service is full or cannot be written; look at it, then repeat."
    return await _deliberate(request, unavailable(error, detail))


def _build_headers(error: DatalensError) -> Mapping[str, str]:
    if isinstance(error, RateLimited):
        return {"Retry-After": str(error.extra["retry_after"])}
    return PRIVATE if isinstance(error, Refused) else {}


def _members(error: DatalensError) -> dict[str, Any]:
    if isinstance(error, Refused):
        # The sender of the file holds the scope datasets:write, which owners alone have.
        return cast("dict[str, Any]", spoken(error.validation_errors))
    if not isinstance(error, BudgetExceeded):
        return error.extra
    budget = {name: error.extra[name] for name in ProblemBudget.model_fields if name in error.extra}
    return {"budget": budget} if budget else {}


async def _invalid(request: Request, error: RequestValidationError) -> ProblemResponse:
    located = problem_errors(error.errors(), error.body)
    first = located[0]
    if concerns_all(first):
        first["detail"] = explain(request, first["code"])
        return _response(request, PROBLEM_TYPES[InvalidInput.slug], first["detail"], {"errors": located})
    others = f" {len(located) - 1} more in errors." if len(located) > 1 else ""
    detail = described(first, _choose_kind(request)) + others
    return _response(request, PROBLEM_TYPES[InvalidInput.slug], detail, {"errors": located})


def _choose_kind(request: Request) -> str:
    """Name what a request is about, by its address: `spec`, `raise`, …; empty for an upload."""
    route = getattr(request.scope.get("route"), "path", "")
    return next((kind for end, kind in _KINDS.items() if route.endswith(end)), "")


async def _from_framework(request: Request, error: HTTPException) -> ProblemResponse:
    problem = BY_STATUS.get(error.status_code, BY_STATUS[400])
    other_body = problem.status == status.HTTP_415_UNSUPPORTED_MEDIA_TYPE
    detail = explain(request, problem.slug) if other_body else problem.remedy
    return _response(request, problem, detail, {}, error.headers)


def _response(
    request: Request,
    problem: ProblemType,
    detail: str,
    members: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    # That which `middleware.RequestLog` gave to the request.
    request_id = str(getattr(request.state, "request_id", None) or uuid4())
    return _answer(problem, detail, request_id, members, headers)


def _answer(
    problem: ProblemType,
    detail: str,
    request_id: str,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """A problem, with what HTTP wants beside its status."""
    content = document(problem, detail, request_id, **(members or {}))
    return ProblemResponse(content, content["status"], {**standard_headers(problem), **(headers or {})})


def standard_headers(problem: ProblemType) -> dict[str, str]:
    """Return the headers that HTTP wants with the status of a problem."""
    by_status = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(_RETRY_AFTER_SECONDS)}}
    return by_status.get(problem.status or 500, {})
