"""Who looks at a page."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from api.deps import Services, ServicesDep, caller
from api.pages.views.rendering import page
from api.security.browser_sessions import resume_session
from datalens_service.store.access import access_log
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.access.keys import ApiKey


@dataclass(frozen=True)
class Visitor:
    """Somebody who has signed in, looking at a page."""

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

    def note(self, services: Services, action: str, object_id: str) -> None:
        """Enter into the journal that they saw something for the owner alone, before they see it."""
        actor, tenant_id = self.key.id, self.tenant_id
        access_log.note(services.database, tenant_id, actor=actor, action=action, object_id=object_id, outcome=200)


def visitor(request: Request, services: ServicesDep, key: Annotated[ApiKey, Depends(caller)]) -> Visitor:
    """Who looks at the page.

    Raises:
        Unauthorized: Nobody has signed in.
        Forbidden: The key lacks the scope of the page.
        NotFound: The page is about an object of another tenant.
    """
    return Visitor(request, resume_session(request, services.database), key)


VisitorDep = Annotated[Visitor, Depends(visitor)]
