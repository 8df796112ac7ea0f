"""Notes every call that is to be noted, before its answer leaves: without the note there is no answer."""

import re
from functools import partial
from typing import Any, Final

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from datalens_service.api.http.middleware import Middleware
from datalens_service.api.http.threads import run_at_once
from datalens_service.api.problems.handlers import answer_withheld
from datalens_service.api.security.permissions import find_rule
from datalens_service.base.errors import StoreUnavailable
from datalens_service.store import patience
from datalens_service.store.access import access_log
from datalens_service.store.access.tenants import OWNED

_ADDRESS: Final = re.compile(r"/v1/[a-z-]+/([A-Za-z0-9_-]{1,40})")


class AccessLogging(Middleware):
    """Writes the audit entry of a call between its handling and its answer, and adds the headers of its limits.

    A call is noted with the id of its key, its operation, the object its path names or that it created, and its status.
    A call without a valid key has no tenant and is in the log alone.
    """

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        withheld = False

        async def noted(message: Message) -> None:
            nonlocal withheld
            if withheld:
                return
            if message["type"] == "http.response.start":
                try:
                    await _note(scope, message)
                except StoreUnavailable as error:
                    withheld = True
                    await answer_withheld(error, scope["state"]["request_id"])(scope, receive, send)
                    return
                rate_limit = scope["state"].get("rate_limit")
                if rate_limit is not None:
                    MutableHeaders(scope=message).update(rate_limit.headers())
            await send(message)

        await self._app(scope, receive, noted)


async def _note(scope: Scope, answer: Message) -> None:
    key = scope["state"].get("caller")
    operation = getattr(scope.get("route"), "operation_id", None)
    if key is None or not find_rule(operation).audited:
        return
    named, made = _object(scope.get("path_params") or {}), _created(answer)
    note = partial(
        access_log.note,
        scope["app"].state.services.database,
        key.tenant_id,
        actor=key.id,
        action=operation or "unknown",
        object_id=named or made,
        outcome=answer["status"],
        detail=f"made {made}" if named and made else "",
    )
    # The action is noted, also if the client hangs up now, or has waited long for the action.
    left = max(patience.LEAST_SECONDS, patience.seconds_left(patience.SECONDS))
    with anyio.CancelScope(shield=True), patience.impatient_in_all(left):
        await run_at_once(note)


def _object(path: dict[str, Any]) -> str | None:
    """The last object that the path names; ids of nobody are cut to what the column holds."""
    named = [str(value) for name, value in path.items() if name in OWNED]
    return named[-1][:40] if named else None


def _created(answer: Message) -> str | None:
    """Id of the object that was created, from the address that the answer gives it. A signed address is no object."""
    address = _ADDRESS.fullmatch(Headers(raw=answer["headers"]).get("location", ""))
    return address[1] if address else None
