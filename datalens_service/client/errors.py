"""Errors that both clients raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datalens_service.client.models import ValidationInfo


class ClientError(Exception):
    """The service refused a request.

    Attributes:
        slug: Stable name of the problem type, for example `privacy-budget-exceeded`.
        title: The type in words.
        detail: A sentence that says what to change.
        status: HTTP status; None if there was no response.
        problem: The whole problem document; empty if there was none.
        request: Method and path that were refused; empty if nothing was sent.
        request_id: Names the request in the service's log; None if it has no name.
    """

    def __init__(
        self,
        slug: str,
        title: str,
        detail: str,
        *,
        status: int | None = None,
        problem: dict[str, Any] | None = None,
        request: str = "",
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.slug = slug
        self.title = title
        self.detail = detail
        self.status = status
        self.problem = problem or {}
        self.request = request
        self.request_id = request_id


class ServiceUnreachable(ClientError):
    """No service answered at this address."""

    def __init__(self, detail: str) -> None:
        super().__init__("service-unreachable", "The service cannot be reached", detail)


def build_validation_error(report: ValidationInfo) -> ClientError:
    """The error for an upload that failed validation; its `problem` names the files."""
    problem = report.model_dump(mode="json", include={"dataset_id", "bad_files", "bad_count", "checked"})
    detail = report.detail or "The upload cannot be used."
    return ClientError(report.code or "dataset-invalid", "Not a usable labelled image set", detail, problem=problem)
