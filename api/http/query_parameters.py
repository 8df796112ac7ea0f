"""Query parameters: whoever misspells one is told so, because an operation refuses what it does not take."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from datalens_service.gateways.openid_provider import CALLBACK

UNKNOWN: Final = "unknown_parameter"
"""Code of the error."""

# OpenID providers add parameters of their own, which OAuth asks to ignore (RFC 6749, 4.1.2).
_TAKE_OTHERS: Final = frozenset({CALLBACK})


async def refuse_unknown(request: Request) -> None:
    """A dependency of the whole application, so that no operation can be without it.

    Raises:
        RequestValidationError: The query names a parameter that the operation does not take.
    """
    route = request.scope["route"]
    if not request.query_params or route.path in _TAKE_OTHERS:
        return
    known = parameters_of(route)
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError([_error(name, known) for name in unknown])


def parameters_of(route: APIRoute) -> list[str]:
    """Names of the query parameters that a route declares, itself and through its dependencies."""
    declared = get_flat_params(route.dependant)
    return sorted(field.alias for field in declared if isinstance(field.field_info, params.Query))


def _error(name: str, known: Sequence[str]) -> dict[str, object]:
    return {"type": UNKNOWN, "loc": ("query", name), "msg": "", "ctx": {"hint": _hint(name, known)}}


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known here: {', '.join(known)}." if known else "None are known here; leave it out."
