"""The form of a job that is being planned, and the training request it stands for."""

from typing import Any, Final, Self

from pydantic import BaseModel, Field, ValidationError

from api.http.strictness import typed
from api.problems.request_errors import described, problem_errors
from api.schemas.common import BudgetRead, TrainingRequest
from datalens_service.data.dataset import Schema
from datalens_service.errors import DatalensError, InvalidSpec
from datalens_service.notation import RefusedMember, json_value
from datalens_service.planning.expectations import expect
from datalens_service.planning.job_names import PRESET_TITLES, TEACHING_TITLE
from datalens_service.planning.presets import DEFAULT_PRESET
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import round_down
from datalens_service.spec import TrainingSpec
from datalens_service.strict import Flag, Integer, Number, Strict

_USUAL_EPSILON: Final = 1.0
_OWN: Final = "own"
_TEACH: Final = "teach"
"""Choice of the preset `auto` with the purpose of that name."""


class Choice(BaseModel):
    """A preset as it is offered.

    Attributes:
        training_seconds: On one core of this machine; None where no such job was measured.
    """

    name: str
    title: str
    meaning: str
    training_seconds: float | None = None


_MEANINGS: Final = {
    "auto": (
        "What suits your images by their number, size and colours, and ε; the plan says what that is. Many small grey "
        "images give sharp ones, labelled by a privately trained classifier, and objects take several times as long "
        "as drawings. Few images, large ones and those in colour give what Fast gives: soft ones."
    ),
    "fast": (
        "Measures how the images of each class look on the whole, once and with noise, and draws new ones from that. "
        "The images are soft."
    ),
    "diffusion": (
        "What Best images does for many objects, whatever the images show: a network learns from the records by noisy "
        "gradients how they are drawn. Surfaces have texture, edges are rougher."
    ),
    "teach": (
        "Of many small grey images, wider, turned and textured samples that models learn from, labelled by a "
        "privately trained classifier. They look rough. Of other images, the same as Fast."
    ),
    "balanced": "Starts like Fast, then thousands of small teacher networks vote on improvements.",
    "classifier": (
        "A classifier instead of images: learns which class an image belongs to, and can be run anywhere (ONNX)."
    ),
    "paper": "DataLens with the settings of its authors, to compare with their figures. Slow without a GPU.",
}
CHOICES: Final = tuple(
    Choice(name=name, title=PRESET_TITLES.get(name, TEACHING_TITLE), meaning=meaning)
    for name, meaning in _MEANINGS.items()
)


def timed_choices(schema: Schema, epsilon: float, calibration_seconds: float | None) -> list[Choice]:
    """The choices with how long each would train, where such jobs were measured.

    Args:
        calibration_seconds: Of this machine (`expectations.measure_machine`).
    """
    return [
        choice.model_copy(update={"training_seconds": _training_seconds(choice, schema, epsilon, calibration_seconds)})
        for choice in CHOICES
    ]


def _training_seconds(choice: Choice, schema: Schema, epsilon: float, calibration: float | None) -> float | None:
    try:
        spec = RequestedSpec.model_validate({"epsilon": epsilon, **_name_preset(choice.name)}).resolve(schema)
    except DatalensError:
        return None
    expectation = expect(spec, schema, calibration)
    return None if expectation is None else expectation.training_seconds


def _name_preset(choice: str) -> dict[str, str]:
    return {"preset": "auto", "purpose": "teach"} if choice == _TEACH else {"preset": choice}


class PlanForm(Strict):
    """What the form says; every value has what a first visitor wants.

    Attributes:
        preset: Key of `PRESETS`, "teach" for "auto" with that purpose, or "own" for a job that repeats another one's
            parameters.
        method: Parameters of the method as JSON; they replace the preset's if they are there.
        public_data: Id of a public data set to start from; empty for none.
        evaluate: Left out by browsers when the box is not ticked.
    """

    preset: str = DEFAULT_PRESET
    epsilon: Number = Field(default=_USUAL_EPSILON, gt=0, le=100)
    seed: Integer = Field(default=0, ge=0, lt=2**63)
    synthetic_images: Integer = Field(default=10_000, ge=1, le=1_000_000)
    evaluate: Flag = False
    method: str = Field(default="", max_length=10_000)
    public_data: str = Field(default="", max_length=64)

    @classmethod
    def first(cls, budget: BudgetRead) -> Self:
        """For somebody who has chosen nothing yet: ε = 1, or what remains if that is less."""
        affordable = round_down(min(_USUAL_EPSILON, budget.epsilon_remaining), 2)
        return cls(epsilon=affordable or _USUAL_EPSILON, evaluate=True)

    @classmethod
    def repeating(cls, spec: TrainingSpec) -> Self:
        """For a job like one that was there before."""
        return cls(
            preset=_OWN,
            epsilon=spec.epsilon,
            seed=spec.seed,
            synthetic_images=spec.synthetic_images,
            evaluate=spec.evaluation.enabled,
            method=spec.method.model_dump_json(indent=2),
            public_data=spec.public_data or "",
        )

    @classmethod
    def filled(cls, values: dict[str, Any]) -> Self:
        """What a browser sends of the form.

        Raises:
            InvalidSpec: A field is out of range, or not one of the form.
        """
        try:
            return cls.model_validate(typed(cls, values))
        except ValidationError as error:
            raise InvalidSpec(_sentence(error, values)) from None

    def request(self, dataset_id: str) -> TrainingRequest:
        """The training request this form stands for.

        Raises:
            InvalidSpec: Its parameters are not JSON, or not those of a method.
        """
        request = {
            **self._wanted(),
            "epsilon": self.epsilon,
            "seed": self.seed,
            "evaluation": {"enabled": self.evaluate},
        }
        if self.public_data:
            request["public_data"] = self.public_data
        if self.preset != "classifier":
            request["synthetic_images"] = self.synthetic_images
        try:
            return TrainingRequest(dataset_id=dataset_id, spec=RequestedSpec.model_validate(request))
        except ValidationError as error:
            raise InvalidSpec(_sentence(error, request)) from None

    def _wanted(self) -> dict[str, Any]:
        """The method as it was written down, or the choice that stands for one."""
        if not self.method.strip():
            return _name_preset(self.preset)
        try:
            return {"method": json_value(self.method)}
        except RefusedMember as refused:
            raise InvalidSpec(f"The parameters cannot be used: {refused}") from None
        except (ValueError, RecursionError):
            raise InvalidSpec("The parameters are not valid JSON; empty the field to use the preset's.") from None


def _sentence(error: ValidationError, request: dict[str, Any]) -> str:
    located = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
    return described(problem_errors(located, request)[0], "spec")
