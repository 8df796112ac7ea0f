"""The form of a job that is being planned, and the training request it stands for."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from datalens_service.api.http.strictness import typed
from datalens_service.api.problems.request_errors import described, problem_errors
from datalens_service.api.schemas.common import BudgetRead
from datalens_service.base.errors import InvalidSpec
from datalens_service.base.parsing import RefusedMember, decimal_number, json_value
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.models.encoders.imagenet_lite0 import takes_photographs
from datalens_service.planning.job_names import OFFERED, TEACH, TITLES
from datalens_service.planning.presets import DEFAULT_PRESET
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import round_down

_USUAL_EPSILON: Final = 1.0
_CERTAIN: Final = 100


class Choice(NamedTuple):
    """A preset as it is offered."""

    name: str
    title: str
    meaning: str


_MEANINGS: Final = {
    "auto": (
        "Chooses the method that suits your images by their number, size and colours, and ε; the plan names it. From "
        "many small grey images it learns outlines, which a privately trained classifier labels. From few images, "
        "large ones and those in colour it draws blurs, as Fast does."
    ),
    "fast": (
        "Measures once, with noise, how the images of each class look on average and how they vary, and draws new "
        "ones from that. They are blurred at best."
    ),
    "diffusion": (
        "Trains a network with noisy gradients to draw such images, as “Best-looking” does for many images of "
        "objects. From many images it learns texture; edges are rougher."
    ),
    "teach": (
        "Draws images that classifiers learn more from, and that look rough. Small grey ones have texture and labels "
        "of a privately trained classifier; if there are many, some are stretched and turned. Others are those of "
        "Fast, under noise."
    ),
    "balanced": (
        "Starts as Fast does; then small teacher networks, each trained on about 15 images, vote on improvements."
    ),
    "classifier": (
        "Trains a classifier instead of drawing images. It says which class an image belongs to, and runs anywhere "
        "(ONNX)."
    ),
    "paper": "Runs DataLens with the settings of its authors, to compare with their figures.",
}
CHOICES: Final = tuple(Choice(name, TITLES[name], _MEANINGS[name]) for name in OFFERED)


def _name_preset(choice: str) -> dict[str, str]:
    return {"preset": "auto", "purpose": "teach"} if choice == TEACH else {"preset": choice}


def suggest_request(budget: BudgetRead) -> RequestedSpec:
    """Suggest a request for somebody who has chosen nothing yet: ε = 1, or what remains if that is less."""
    affordable = round_down(min(_USUAL_EPSILON, budget.epsilon_remaining), 2)
    return RequestedSpec(preset=DEFAULT_PRESET, epsilon=affordable or _USUAL_EPSILON)


def read_form(values: Mapping[str, Any]) -> RequestedSpec:
    """The job that a form asks for.

    Args:
        values: Texts by name. `preset` is one of `CHOICES`, or "own" for the parameters of
            another job. `method` is JSON, which replaces it. Browsers leave `evaluation` out when it is not ticked.

    Raises:
        InvalidSpec: A field is out of range, or not one of the form; parameters are not JSON, or not those of a method.
    """
    optional = ("public_data", "encoder", "class_shares", "accuracy")
    filled = {name: value for name, value in values.items() if value or name not in optional}
    filled.pop("accuracy", None)
    if "class_shares" in filled:
        filled["class_shares"] = _read_numbers(filled["class_shares"])
    choice, method, encoder = filled.pop("preset", DEFAULT_PRESET), filled.pop("method", ""), filled.pop("encoder", "")
    evaluation = typed(EvaluationSettings, {"enabled": filled.pop("evaluation", False)})
    if choice == "classifier":
        filled.pop("synthetic_images", None)
    wanted = {"method": _parse_method(method)} if method.strip() else _name_preset(choice)
    if encoder:
        wanted = {"method": _through(_parse_method(encoder), wanted, pool="public_data" in filled)}
    request = {**wanted, **typed(RequestedSpec, filled), "evaluation": evaluation}
    try:
        return RequestedSpec.model_validate(request)
    except ValidationError as error:
        located = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise InvalidSpec(described(problem_errors(located, request)[0], "spec")) from None


def read_wanted(values: Mapping[str, Any]) -> float | None:
    """Read the wanted accuracy of a form; None where the field is empty.

    Raises:
        InvalidSpec: It is no percentage.
    """
    text = values.get("accuracy") or ""
    if not text:
        return None
    try:
        percent = decimal_number(text)
    except (TypeError, ValueError):
        percent = 0.0
    if not 0 < percent < _CERTAIN:
        raise InvalidSpec("⟦spec.accuracy⟧ takes a percentage above 0 and below 100.")
    return percent


def _read_numbers(text: Any) -> Any:
    """Numbers with commas between; anything else stays as it is, so that validation refuses it."""
    try:
        return [decimal_number(part.strip()) for part in text.split(",")]
    except (AttributeError, ValueError):
        return text


def offer_encoders(schema: Schema) -> list[tuple[str, str]]:
    """Encoders that need no upload, as a request names them, with their titles."""
    photographs = [('{"name": "imagenet-lite0"}', "Features of photographs (imagenet-lite0)")]
    return [('{"name": "scattering"}', "Wavelets"), *(photographs if takes_photographs(schema) else [])]


def _through(encoder: Any, wanted: Mapping[str, Any], *, pool: bool) -> dict[str, Any]:
    """The method of a choice that sees images through an encoder."""
    seeing = {"name": "scattering", "encoder": encoder}
    if wanted == _name_preset("classifier"):
        return seeing
    if wanted == _name_preset(TEACH) and pool:
        return {"name": "labelled_pool", "classifier": seeing}
    raise InvalidSpec(
        f"An encoder serves “{TITLES['classifier']}”, and “{TITLES[TEACH]}” with public images: choose one of them, or "
        "no encoder."
    )


def _parse_method(text: str) -> Any:
    try:
        return json_value(text)
    except RefusedMember as refused:
        raise InvalidSpec(f"The parameters cannot be used: {refused}") from None
    except (ValueError, RecursionError):
        raise InvalidSpec("The parameters are not valid JSON; empty the field to use the preset's.") from None
