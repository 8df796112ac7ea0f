"""Turns errors of pydantic into sentences that say what to change, with a JSON pointer to each place.

Values are never repeated: only limits and names that the API itself declares.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from datalens_service.base.wording import Voice, current_voice, speak, speak_path

Location = Sequence[str | int]

_SENTENCES: Final[dict[str, str]] = {
    "missing": "Add this ⟦member⟧; it has no default.",
    "extra_forbidden": "There is no ⟦member⟧ of this name; remove it or correct its spelling.",
    "greater_than": "Must be greater than {gt}.",
    "greater_than_equal": "Must be at least {ge}.",
    "less_than": "Must be less than {lt}.",
    "less_than_equal": "Must be at most {le}.",
    "finite_number": "Must be a finite number.",
    "float_type": "Must be a finite number.",
    "float_parsing": "Must be a number.",
    "int_type": "Must be a whole number.",
    "int_parsing": "Must be a whole number.",
    "int_from_float": "Must be a whole number.",
    "bool_type": "Must be true or false.",
    "bool_parsing": "Must be true or false.",
    "string_type": "Must be a string.",
    "string_too_short": "Must have at least {min_length} characters.",
    "string_too_long": "Must have at most {max_length} characters.",
    "string_pattern_mismatch": "Must match the pattern {pattern}.",
    "literal_error": "Must be {expected}.",
    "enum": "Must be {expected}.",
    "union_tag_invalid": "The name must be one of {expected_tags}.",
    "union_tag_not_found": "Add the ⟦member⟧ {discriminator} that says which one is meant.",
    "string_unicode": "Must be valid Unicode.",
    "model_attributes_type": "Must be a JSON object.",
    "model_type": "Must be a JSON object.",
    "dict_type": "Must be a JSON object.",
    "list_type": "Must be a JSON array.",
    "duplicate_member": "Occurs twice in its object; send it once.",
    "nul_character": "Must not have the character NUL.",
    "unknown_parameter": "There is no parameter of this name. {hint}",
}


def problem_errors(errors: Sequence[Mapping[str, Any]], body: object) -> list[dict[str, str]]:
    """The member `errors` of a problem.

    Args:
        errors: From pydantic, with locations that start with the part of the request.
        body: The JSON that was sent, to tell its members from names that pydantic adds to a location.

    Returns:
        One {in, pointer, detail, code} per error; `pointer` is an RFC 6901 fragment within the part `in`. `detail` is
        for people, in the words of whoever reads; the rest is for programs and the same for everybody.
    """
    return [_one(error, body) for error in errors]


def described(error: Mapping[str, str], request: str) -> str:
    """Say to people where an error is and what to change: the field or option, or the pointer for readers of REST.

    Args:
        request: Kind of request, as the catalogue of voices has it in front of names; empty for an upload.
    """
    pointer = error["pointer"]
    if _is_of_the_program(error["in"]):
        return error["detail"]
    if current_voice() is Voice.REST:
        return f"{pointer if error['in'] == 'body' else error['in'] + ' ' + pointer}: {error['detail']}"
    place = speak_path(_named(pointer, request)) or pointer.removeprefix("#/").replace("/", ".")
    return f"{place[:1].upper()}{place[1:]}: {error['detail']}" if " " in place else f"{place}: {error['detail']}"


def _is_of_the_program(part: str) -> bool:
    """Return True if pages and commands send this part by themselves, so that its reader never wrote it."""
    return part == "header" and current_voice() is not Voice.REST


def _named(pointer: str, request: str) -> list[str]:
    """A pointer as a name in the catalogue; parameters of methods and of the evaluation have one in all requests."""
    steps = [step for step in pointer.removeprefix("#").split("/") if step]
    if steps[:1] == ["spec"]:
        steps, request = steps[1:], "spec"
    steps = [step for step in steps if not step.isdecimal()]
    shared = len(steps) > 1 and steps[0] in ("method", "evaluation")
    return steps if shared or not request else [request, *steps]


def _one(error: Mapping[str, Any], body: object) -> dict[str, str]:
    part, *rest = error["loc"] or ("body",)
    path = _existing(rest, body, error["type"]) if part == "body" else rest
    detail = speak("⟦send_as_described⟧.") if _is_of_the_program(str(part)) else _sentence(error)
    return {"in": str(part), "pointer": _pointer(path), "detail": detail, "code": error["type"]}


def _existing(location: Location, body: object, code: str) -> Location:
    """The elements of a location that stand in the document, and the name of a member that is missing."""
    path: list[str | int] = []
    here = body
    for number, step in enumerate(location, start=1):
        if isinstance(here, Mapping) and step in here:
            here = here[step]
        elif isinstance(here, Sequence) and not isinstance(here, str | bytes) and isinstance(step, int):
            here = here[step] if step < len(here) else None
        elif code != "missing" or number < len(location):
            continue
        path.append(step)
    return path


def _pointer(path: Location) -> str:
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _sentence(error: Mapping[str, Any]) -> str:
    context = error.get("ctx") or {}
    if error["type"] == "value_error":
        return speak(str(context["error"]))
    template = _SENTENCES.get(error["type"], "Has another type or form than the API description names.")
    return speak(template).format_map(context)
