"""Addresses at which there is nothing: a page for browsers, a problem document for programs."""

from __future__ import annotations

from typing import Final, cast

from fastapi import FastAPI, Request, Response, status
from starlette.exceptions import HTTPException

from api.addresses import inner_path
from api.pages.views.rendering import error_page
from api.problems.problem_types import BY_STATUS

_API: Final = "/v1/"
_SENTENCE: Final = "There is nothing at this address."


def install(app: FastAPI) -> None:
    """Answer browsers by a page where the handler that is installed already answers by a problem document."""
    handle = app.exception_handlers[HTTPException]

    def answer(request: Request, error: Exception) -> Response:
        unknown = isinstance(error, HTTPException) and error.status_code == status.HTTP_404_NOT_FOUND
        if unknown and _reads_pages(request):
            return error_page(request, BY_STATUS[status.HTTP_404_NOT_FOUND], _SENTENCE)
        # The installed handler is a plain function, so this one runs in a thread, too.
        return cast(Response, handle(request, error))

    app.add_exception_handler(HTTPException, answer)


def _reads_pages(request: Request) -> bool:
    """Whether a person with a browser asks, outside of the REST API."""
    return "text/html" in request.headers.get("accept", "") and not inner_path(request.scope).startswith(_API)
