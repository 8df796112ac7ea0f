"""Who looks at a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from api.deps import ServicesDep, caller
from api.pages.views.rendering import page
from api.security.browser_sessions import resume_session
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.access.keys import ApiKey


@dataclass(frozen=True)
class Visitor:
    """Somebody who has signed in, looking at a page.

    Attributes:
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
