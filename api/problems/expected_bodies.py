"""Explains which body an operation takes, to a client that has sent another one.

Kinds of bodies and their examples are those of the API description, so no operation can be without them.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import Request
from fastapi.routing import APIRoute

from datalens_service.base.wording import Voice, current_voice, speak

JSON: Final = "application/json"
FORM: Final = "multipart/form-data"
MALFORMED_FORM: Final = "form_invalid"
NO_FILE: Final = "file_missing"

_BROKEN: Final[dict[str, str]] = {
    "json_invalid": "The body is not valid JSON.",
    MALFORMED_FORM: "The form is malformed or cut off.",
    NO_FILE: "The form has no file in a part named file.",
}
_WHOLE: Final = frozenset({*_BROKEN, "missing", "model_type", "model_attributes_type", "dict_type"})
_KINDS: Final[dict[str, str]] = {JSON: "a JSON object", FORM: "a form with a file"}
_MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,80}")


def concerns_all(error: Mapping[str, str]) -> bool:
    """Return True if an error of `request_errors` means that the body as a whole cannot be read."""
    return (error["in"], error["pointer"]) == ("body", "#") and error["code"] in _WHOLE


def explain(request: Request, code: str) -> str:
    """Say what came, what the operation takes instead, and how curl sends it.

    Args:
        code: Code of the error; one that is not known here says that the body is of another kind.
    """
    if current_voice() is not Voice.REST:
        anew = "⟦send_form⟧" if code in (MALFORMED_FORM, NO_FILE) else "⟦send_as_described⟧"
        return speak(f"What was sent cannot be read: {anew}.")
    taken = [
        f"{_KINDS.get(media, 'bytes')} ({media}; curl: {_options(media, example)})"
        for media, example in list_bodies(request.scope["route"])
    ]
    return f"{_came(request, code)} This operation takes {', or '.join(taken)}."


def list_bodies(route: APIRoute) -> Iterator[tuple[str, Any]]:
    """Each media type that a route takes, with the first example of it."""
    if route.body_field is not None:
        examples = getattr(route.body_field.field_info, "openapi_examples", None) or {}
        yield JSON, next((one["value"] for one in examples.values()), {})
    for media, content in (route.openapi_extra or {}).get("requestBody", {}).get("content", {}).items():
        yield media, content["example"]


def _came(request: Request, code: str) -> str:
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return "The request has no body."
    if code in _BROKEN:
        return _BROKEN[code]
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == JSON and code in _WHOLE:
        return "The body is JSON, but no object."
    return f"The body came {f'as {media}' if _MEDIA_TYPE.fullmatch(media) else 'without a usable Content-Type'}."


def _options(media: str, example: Any) -> str:
    if media == JSON:
        return f"--json {shlex.quote(json.dumps(example, ensure_ascii=False))}"
    if media == FORM:
        return " ".join(f"-F {shlex.quote(f'{name}={value}')}" for name, value in example.items())
    return f"-H {shlex.quote(f'Content-Type: {media}')} --data-binary @file"
