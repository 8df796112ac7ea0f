"""Pages from templates, with headers that let a page load and run nothing but our own files."""

import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any, Final, cast
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from datalens_service.api.addresses import address, inner_path
from datalens_service.api.deps import Services, ServicesDep, caller
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.http.threads import run_at_once, run_in_thread
from datalens_service.api.pages.views.formatting import FILTERS, marked
from datalens_service.api.problems.handlers import standard_headers
from datalens_service.api.problems.problem_types import BY_STATUS, INTERNAL, PROBLEM_TYPES, ProblemType
from datalens_service.api.problems.request_errors import problem_errors
from datalens_service.api.security.browser_sessions import resume_session
from datalens_service.base.errors import DatalensError, Forbidden, InvalidInput, Unauthorized
from datalens_service.base.parsing import spell_number
from datalens_service.store.access import access_log
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.access.keys import ApiKey

_ENTRY: Final = re.compile(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", re.MULTILINE)
SIGN_IN: Final = "/sign-in"
HOME: Final = "/"
RELEASES: Final = "/releases"
THEME_COOKIE: Final = "datalens-theme"
_THEMES: Final = frozenset({"light", "dark"})
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def read_glossary() -> dict[str, str]:
    """Read the words in the order of the file: a “?” of a page says the first sentence, and leads to the rest."""
    text = files("datalens_service.api.pages").joinpath("glossary.md").read_text(encoding="utf-8")
    return {word: " ".join(meaning.split()) for word, meaning in _ENTRY.findall(text)}


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("datalens_service.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=spell_number,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS, marked=marked)
    made.globals.update(url=address, glossary=read_glossary())
    return made


_templates: Final = _environment()


def page(
    request: Request, template: str, session: BrowserSession | None = None, *, status: int = 200, **facts: Any
) -> HTMLResponse:
    theme = request.cookies.get(THEME_COOKIE, "")
    content = _templates.get_template(f"{template}.html.j2").render(
        path=inner_path(request.scope),
        session=session,
        scopes=session.key.scopes if session else frozenset(),
        theme=theme if theme in _THEMES else None,
        version=version("datalens-service"),
        **facts,
    )
    return HTMLResponse(content, status, headers=_HEADERS)


def open_page(request: Request, template: str, *, status: int = 200, **facts: Any) -> HTMLResponse:
    """A page that needs no session, with the way around for visitors who have one."""
    session = None
    with suppress(DatalensError):
        session = resume_session(request, request.app.state.services.database)
    return page(request, template, session, status=status, **facts)


class PageRoute(StrictRoute):
    """A route whose errors are pages: the sign-in form for visitors without a session, a sentence for all else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with its errors answered."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized:
                place = inner_path(request.scope) if request.method == "GET" else HOME
                return RedirectResponse(f"{SIGN_IN}?next={quote(place)}", 303)
            except (DatalensError, RequestValidationError, HTTPException) as error:
                # Keys that see no data set begin with what was released.
                if isinstance(error, Forbidden) and inner_path(request.scope) == HOME:
                    return RedirectResponse(RELEASES, 303)
                # In a thread: the page asks who is signed in, and a database may not answer.
                return await run_at_once(error_page, request, *_said(error))

        return answer


class SharedRoute(StrictRoute):
    """A route without a session, whose errors are pages for browsers and problem documents for programs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with its errors answered."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except (DatalensError, RequestValidationError, HTTPException) as error:
                if not _is_person(request):
                    raise
                return await run_at_once(error_page, request, *_said(error))

        return answer


def _is_person(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def local_path(path: str) -> str:
    """The path, if it is one of this service and never another site's; otherwise the start page."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if inside and path.isprintable() else "/"


def _said(error: DatalensError | RequestValidationError | HTTPException) -> tuple[ProblemType, str]:
    """The problem that an error stands for, and its sentence."""
    if isinstance(error, DatalensError):
        return PROBLEM_TYPES.get(error.slug, INTERNAL), error.detail
    if isinstance(error, RequestValidationError):
        return _wrong_address(error)
    problem = BY_STATUS.get(error.status_code, BY_STATUS[400])
    return problem, problem.remedy


def _wrong_address(error: RequestValidationError) -> tuple[ProblemType, str]:
    """Name the parameter of an address that is wrong; if none is, there is nothing at it."""
    for place in problem_errors(error.errors(), error.body):
        if place["in"] == "query":
            return PROBLEM_TYPES[InvalidInput.slug], f"{place['pointer'][2:]} in the address: {place['detail']}"
    return BY_STATUS[404], _NOTHING


def error_page(request: Request, problem: ProblemType, detail: str) -> HTMLResponse:
    response = open_page(request, "error", status=problem.status or 500, problem=problem, detail=detail)
    response.headers.update(standard_headers(problem))
    return response


_API: Final = "/v1/"
_NOTHING: Final = "There is nothing at this address."


def answer_browsers(app: FastAPI) -> None:
    """Answer browsers by a page where the handler that is installed already answers by a problem document."""
    handle = cast("Callable[[Request, Exception], Awaitable[Response]]", app.exception_handlers[HTTPException])

    async def answer(request: Request, error: Exception) -> Response:
        unknown = isinstance(error, HTTPException) and error.status_code == status.HTTP_404_NOT_FOUND
        person = _is_person(request) and not inner_path(request.scope).startswith(_API)
        if unknown and person:
            return await run_at_once(error_page, request, BY_STATUS[status.HTTP_404_NOT_FOUND], _NOTHING)
        return await handle(request, error)

    app.add_exception_handler(HTTPException, answer)


@dataclass(frozen=True)
class Visitor:
    """A person who has signed in and looks at a page."""

    request: Request
    session: BrowserSession
    key: ApiKey

    @property
    def tenant_id(self) -> str:
        """Return the tenant whose objects they see."""
        return self.key.tenant_id

    def page(self, template: str, **facts: Any) -> HTMLResponse:
        return page(self.request, template, self.session, **facts)

    def note(self, services: Services, action: str, object_id: str) -> None:
        """Enter into the journal that they saw something for the owner alone, before they see it."""
        actor, tenant_id = self.key.id, self.tenant_id
        access_log.note(services.database, tenant_id, actor=actor, action=action, object_id=object_id, outcome=200)


async def visitor(request: Request, services: ServicesDep, key: Annotated[ApiKey, Depends(caller)]) -> Visitor:
    """Return who looks at the page.

    Raises:
        Unauthorized: Nobody has signed in.
        Forbidden: The key lacks the scope of the page.
        NotFound: The page is about an object of another tenant.
    """
    return Visitor(request, await run_in_thread(resume_session, request, services.database), key)


VisitorDep = Annotated[Visitor, Depends(visitor)]
