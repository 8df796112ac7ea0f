"""Responses of the service: parsed, or turned into a `ClientError` that says what to change."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from datalens_service.client.errors import ClientError, ServiceUnreachable
from datalens_service.client.models import ResponseModel

ParsedModel = TypeVar("ParsedModel", bound=ResponseModel)


@contextmanager
def convert_connection_errors(url: str) -> Generator[None]:
    """Raise `ServiceUnreachable` where the connection fails.

    Raises:
        ServiceUnreachable: No response, or the connection broke.
    """
    try:
        yield
    except httpx2.RequestError as error:
        raise ServiceUnreachable(
            f"No answer from {url} ({type(error).__name__}): start it with `datalens serve`, or name another address."
        ) from error


def raise_for_problem(response: httpx2.Response) -> httpx2.Response:
    """The response itself, if it is a success.

    Raises:
        ClientError: It is a problem document, or comes from something else than this service.
    """
    if response.is_success:
        return response
    problem = parse_object(response)
    if not {"code", "title", "detail"} <= problem.keys():
        raise unexpected_response(response)
    error = ClientError(
        str(problem["code"]),
        str(problem["title"]),
        str(problem["detail"]),
        status=response.status_code,
        problem=problem,
        request=f"{response.request.method} {response.request.url.path}",
        request_id=response.headers.get("X-Request-ID"),
    )
    error.add_note(f"{error.request} → {error.status} {error.slug}; request {error.request_id} in the log.")
    raise error


def parse_model(model: type[ParsedModel], response: httpx2.Response) -> ParsedModel:
    """The response body as `model`.

    Raises:
        ClientError: The body is something else.
    """
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise unexpected_response(response) from error


class _Page(ResponseModel):
    items: tuple[dict[str, Any], ...]
    has_more: bool
    next_cursor: str | None


def parse_page(model: type[ParsedModel], response: httpx2.Response) -> tuple[list[ParsedModel], str | None]:
    """Items of a page of a list, and the cursor of the next one; None for the last.

    Raises:
        ClientError: The body is something else.
    """
    try:
        page = _Page.model_validate_json(response.content)
        items = [model.model_validate(item) for item in page.items]
    except ValidationError as error:
        raise unexpected_response(response) from error
    return items, page.next_cursor if page.has_more else None


def parse_object(response: httpx2.Response) -> dict[str, Any]:
    """The response body as a JSON object."""
    try:
        content = response.json()
    except ValueError as error:
        raise unexpected_response(response) from error
    if not isinstance(content, dict):
        raise unexpected_response(response)
    return content


def unexpected_response(response: httpx2.Response) -> ClientError:
    """The error for an answer of something else than this service."""
    return ClientError(
        "unexpected-answer",
        "The service gave an unexpected answer",
        f"{response.url} (status {response.status_code}) did not answer like this version of the service: "
        "check the address, and that client and service have the same version.",
        status=response.status_code,
    )
