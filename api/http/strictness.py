"""Reads requests strictly: JSON without ambiguous members, text of forms and queries in one notation."""

import difflib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, get_args

from fastapi import Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException

from datalens_service.adapters.openid_provider import CALLBACK
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.base.parsing import NUL, RefusedMember, decimal_number, flag, json_value, whole_number

_READERS: Final[dict[Any, Callable[[str], Any]]] = {float: decimal_number, int: whole_number, bool: flag}


def no_json() -> RequestValidationError:
    """The body cannot be read as JSON at all."""
    return RequestValidationError([{"type": "json_invalid", "loc": ("body",), "msg": ""}])


class StrictRoute(ThreadedRoute):
    """A route that refuses a JSON body in which a member occurs twice, or a value is none that can be kept."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, reading its body strictly."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            try:
                return await handle(_StrictRequest(request.scope, request.receive))
            except HTTPException as error:
                # The framework makes a bare 400 of whatever a body that cannot be read raises.
                if isinstance(error.__cause__, RequestValidationError):
                    raise error.__cause__ from None
                if isinstance(error.__cause__, ValueError | RecursionError):
                    raise no_json() from None
                raise

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parsed(await self.body())


def parsed(content: bytes) -> Any:
    """The value of a JSON body.

    Raises:
        RequestValidationError: A member occurs twice, or a value is none that can be kept; it names the place.
        ValueError: Not JSON.
        RecursionError: Nested too deeply.
    """
    try:
        return json_value(content)
    except RefusedMember as refused:
        errors = [{"type": refused.code, "loc": ("body", *refused.path), "msg": str(refused)}]
        raise RequestValidationError(errors, body=json.loads(content)) from None


@contextmanager
def as_request_errors(body: Any) -> Iterator[None]:
    """Within the block, a model that does not hold is made of this body.

    Raises:
        RequestValidationError: It does not hold; the places are those in the body.
    """
    try:
        yield
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in errors], body=body) from None


def typed(model: type[BaseModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a form as the types that `model` declares.

    Text that is not in plain notation stays text, so that validation refuses it and names the field.
    """
    return {name: _typed(model, name, value) for name, value in fields.items()}


def _typed(model: type[BaseModel], name: str, value: Any) -> Any:
    declared = model.model_fields.get(name)
    if declared is None or not isinstance(value, str):
        return value
    for leaf in _leaves(declared.annotation):
        if leaf in _READERS:
            return _read(_READERS[leaf], value)
    return value


def _read(reader: Callable[[str], Any], text: str) -> Any:
    try:
        return reader(text)
    except ValueError:
        return text


def _leaves(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaves(part)


def _digits(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return whole_number(value)
    except ValueError:
        raise PydanticCustomError("int_parsing", "Must be a whole number.") from None


DIGITS: Final = BeforeValidator(_digits)
"""Checks whole numbers in a query or a header; last in an annotation, so that limits are those of the number."""


UNKNOWN: Final = "unknown_parameter"
"""Code of the error."""

# OpenID providers add parameters of their own, which OAuth asks to ignore (RFC 6749, 4.1.2).
_TAKE_OTHERS: Final = frozenset({CALLBACK})


async def refuse_unknown(request: Request) -> None:
    """A dependency of the whole application, so that no operation can be without it.

    Raises:
        RequestValidationError: A query parameter is not known here, or has a character that no database takes.
    """
    route = request.scope["route"]
    if bad := [name for name, value in request.query_params.multi_items() if NUL in value]:
        raise RequestValidationError([{"type": "nul_character", "loc": ("query", name), "msg": ""} for name in bad])
    if not request.query_params or route.path in _TAKE_OTHERS:
        return
    accepted = {name for name, _ in _list_queries(route)}
    unknown = [name for name in request.query_params if name not in accepted]
    if unknown:
        hints = {name: {"hint": _hint(name, list_parameters(route))} for name in unknown}
        errors = [{"type": UNKNOWN, "loc": ("query", name), "msg": "", "ctx": hint} for name, hint in hints.items()]
        raise RequestValidationError(errors)


def list_parameters(route: APIRoute) -> list[str]:
    """Names of the query parameters that a route describes; earlier names are taken, and left out here."""
    return sorted(name for name, parameter in _list_queries(route) if parameter.include_in_schema)


def _list_queries(route: APIRoute) -> Iterator[tuple[str, params.Query]]:
    """Query parameters that a route declares, itself and through its dependencies, with their names."""
    for field in get_flat_params(route.dependant):
        if isinstance(field.field_info, params.Query):
            yield field.alias, field.field_info


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known here: {', '.join(known)}." if known else "None are known here; leave it out."
