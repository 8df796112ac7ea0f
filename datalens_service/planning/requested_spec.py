"""A request that may leave the method open: a preset, or nothing at all."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Frozen
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.planning.presets import DEFAULT_PRESET, PRESETS, Purpose, plan_named, preset
from datalens_service.privacy.accounting import default_delta
from datalens_service.spec import (
    SYNTHETIC_IMAGES,
    ClassShares,
    Delta,
    Device,
    Epsilon,
    NamedMethod,
    PublicDataId,
    Seed,
    SyntheticImages,
    TrainingSpec,
    WantedDevice,
)


def _check_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}: choose {', '.join(PRESETS)}.")
    return name


PresetName = Annotated[str, AfterValidator(_check_preset), Field(json_schema_extra={"enum": list(PRESETS)})]


class RequestedSpec(Frozen):
    """A training job as it is requested. With neither method nor preset it is the preset auto."""

    method: NamedMethod | None = Field(
        default=None, description="The method with its parameters; left out, `preset` chooses it."
    )
    preset: PresetName | None = Field(
        default=None,
        description="Chooses a method and its parameters from the public schema and ε; the plan and the job say which. "
        "Left out, and without a method, `auto`.",
    )
    purpose: Purpose | None = Field(
        default=None,
        description="Purpose of the preset `auto`: images to `look` at, or images that `teach` classifiers and, "
        "where records are few, look rougher. Left out, `look`.",
    )
    epsilon: Epsilon
    delta: Delta = None
    seed: Seed = 0
    synthetic_images: SyntheticImages = SYNTHETIC_IMAGES
    evaluation: EvaluationSettings = EvaluationSettings()
    device: WantedDevice = Device.AUTO
    public_data: PublicDataId = None
    class_shares: ClassShares = None

    @model_validator(mode="after")
    def _names_one_of_both(self) -> Self:
        if self.method is None:
            return self
        if self.preset is not None or self.purpose is not None:
            raise ValueError("Name a method or a preset, not both: a preset names its method.")
        # A member that does not go with the method is refused with its place in the request.
        TrainingSpec.model_validate(self._stated(self.method.model_dump()))
        return self

    def resolve(self, schema: Schema) -> TrainingSpec:
        """Resolve the request to its method, which a preset chooses from public values, and all parameters.

        Raises:
            InvalidSpec: The preset has no such purpose, or something does not go with the method it chooses.
        """
        name, purpose, pool = self.preset or DEFAULT_PRESET, self.purpose or "look", self.public_data is not None
        if self.method is None:
            method = preset(name, schema, self.epsilon, purpose, pool=pool)
        else:
            method = plan_named(self.method, schema, self.epsilon)
        delta = default_delta(schema.num_units) if self.delta is None else self.delta
        try:
            method = method.settle(schema, self.epsilon, delta)
            return TrainingSpec.model_validate(self._stated(method.model_dump()))
        except ValidationError as error:
            raise InvalidSpec(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None

    def _stated(self, method: dict[str, Any]) -> dict[str, Any]:
        chosen = {"method", "preset", "purpose"}
        return self.model_dump(exclude=chosen, exclude_unset=True) | {"method": method}
