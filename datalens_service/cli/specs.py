"""Turns options into a `TrainingSpec`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from datalens_service.base.errors import InvalidInput, InvalidSpec
from datalens_service.base.parsing import RefusedMember, decimal_number, json_value
from datalens_service.cli import options
from datalens_service.cli.error_messages import describe_error

if TYPE_CHECKING:
    from pydantic import BaseModel

    from datalens_service.data.dataset import Schema
    from datalens_service.data.intake.reading_choices import ReadingChoices
    from datalens_service.spec import TrainingSpec

_EVALUATION = "evaluation."

Model = TypeVar("Model", bound="BaseModel")


@dataclass(frozen=True)
class MethodOptions:
    """Options of the command line that choose a method and its price.

    Attributes:
        delta: δ; None leaves it to the data set.
        settings: `key=value` parameters of the method, or of the evaluation with `evaluation.` in front.
        purpose: Purpose of the preset auto: "look" or "teach".
    """

    epsilon: options.Epsilon
    delta: options.Delta = None
    method: options.MethodName = None
    preset: options.PresetName = None
    settings: options.Settings = None
    purpose: options.Purpose = "look"
    class_shares: options.ClassShares = None

    def read_shares(self) -> tuple[float, ...] | None:
        """Read the declared frequencies of the classes.

        Raises:
            InvalidSpec: One of them is no number.
        """
        if self.class_shares is None:
            return None
        try:
            return tuple(decimal_number(share.strip()) for share in self.class_shares.split(","))
        except ValueError as error:
            raise InvalidSpec(f"--class-shares takes numbers with commas between: {error}") from None


@dataclass(frozen=True)
class PlanOptions(MethodOptions):
    """The same of a plan, which may leave ε to the accuracy that is wanted."""

    epsilon: options.PlannedEpsilon = None  # type: ignore[assignment]


@dataclass(frozen=True)
class SpecOptions(MethodOptions):
    """Options of the command line that describe a job."""

    seed: options.Seed = 0
    synthetic_images: options.SyntheticImages = 10_000
    evaluation: options.Evaluation = True
    device: options.Device = "auto"
    public_data: str | None = None

    @property
    def changes_preset(self) -> bool:
        """Return True if parameters of a method are named that a preset chooses; a service takes no such request."""
        return self.method is None and any(not setting.startswith(_EVALUATION) for setting in self.settings or ())

    def with_encoders(self, read: Callable[[Path], Mapping[str, Any]]) -> SpecOptions:
        """The same, where `encoder=FILE.onnx` is what names the file in a request."""

        def named(setting: str) -> str:
            key, _, value = setting.partition("=")
            is_file = key.rpartition(".")[2] == "encoder" and value.endswith(".onnx")
            return f"{key}={json.dumps(read(Path(value)))}" if is_file else setting

        return replace(self, settings=[named(setting) for setting in self.settings or ()])

    def build_spec(self, schema: Schema) -> TrainingSpec:
        """The training request for a data set with this public schema.

        Raises:
            InvalidSpec: An option does not fit, or does not go with the method that the preset chooses.
        """
        from datalens_service.planning.requested_spec import RequestedSpec
        from datalens_service.spec import TrainingSpec

        if not self.changes_preset:
            return _validate(self.build_request(), RequestedSpec).resolve(schema)
        unchanged = replace(self, settings=[one for one in self.settings or () if one.startswith(_EVALUATION)])
        method = unchanged.build_spec(schema).method.model_dump(mode="json")
        return _validate(self._state({"method": method}), TrainingSpec)

    def build_request(self) -> dict[str, Any]:
        """The request as a service takes it: a preset by its name, which the service knows and resolves.

        Raises:
            InvalidSpec: Both a method and a preset are named, or a parameter is unknown or out of range.
        """
        from datalens_service.planning.requested_spec import RequestedSpec

        stated = self._state({} if self.method is None else {"method": {"name": self.method}})
        named: dict[str, Any] = {} if self.preset is None else {"preset": self.preset}
        request = stated | named | ({} if self.purpose == "look" else {"purpose": self.purpose})
        # A service may know presets that this version does not.
        _validate(stated if self.method is None else request, RequestedSpec)
        return request

    def _state(self, chosen: dict[str, Any]) -> dict[str, Any]:
        """State all options as JSON, beside what was chosen."""
        request: dict[str, Any] = {
            **chosen,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
            "synthetic_images": self.synthetic_images,
            "evaluation": {"enabled": self.evaluation},
            "device": self.device,
            "public_data": self.public_data,
        }
        request |= {} if self.class_shares is None else {"class_shares": self.read_shares()}
        for setting in _check_unique(self.settings or ()):
            _assign(request if setting.startswith(_EVALUATION) else request["method"], setting)
        return request


def _validate(request: dict[str, Any], model: type[Model]) -> Model:
    from pydantic import ValidationError

    try:
        return model.model_validate(request)
    except ValidationError as error:
        raise InvalidSpec(describe_error(error, model)) from error


def parse_class_names(text: str | None) -> tuple[str, ...] | None:
    """Names between commas; None if nothing was said."""
    return tuple(name.strip() for name in text.split(",")) if text else None


def _assign(parameters: dict[str, Any], setting: str) -> None:
    """Put `a.b=value` where it belongs; the value is JSON, or else a string."""
    key, separator, text = setting.partition("=")
    if not separator or not all(key.split(".")):
        raise InvalidSpec(f"--set takes key=value, not {setting!r}.")
    *path, last = key.split(".")
    for name in path:
        inner = parameters.get(name)
        parameters[name] = parameters = _open_group(inner)
    parameters[last] = _parse_value(text)


def _open_group(inner: Any) -> dict[str, Any]:
    """A group of parameters to write into: a named one by its name, a missing one empty."""
    if isinstance(inner, str):
        return {"name": inner}
    return dict(inner) if isinstance(inner, dict) else {}


def _check_unique(settings: Sequence[str]) -> Sequence[str]:
    keys = [setting.partition("=")[0] for setting in settings]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidSpec(f"--set names {key} twice; name it once.")
    return settings


def _parse_value(text: str) -> Any:
    try:
        return json_value(text)
    except RefusedMember as refused:
        raise InvalidSpec(f"--set: {refused}") from None
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True)
class WantedSpecOptions(SpecOptions):
    """The same of a job whose ε may be left to the accuracy that is wanted."""

    epsilon: options.PlannedEpsilon = None  # type: ignore[assignment]


@dataclass(frozen=True)
class MetadataOptions:
    """Options of the command line for the metadata of a data set; the names are those of an upload's form."""

    class_names: options.ClassNames = None
    ignore_groups: options.IgnoreGroups = False
    group_column: options.GroupColumn = None
    label_column: options.LabelColumn = None
    encoding: options.TextEncoding = None
    skip_unreadable: options.SkipUnreadable = False
    allow_identifying_classes: options.AllowIdentifyingClasses = False


@dataclass(frozen=True)
class ReadingOptions(MetadataOptions):
    """Options of the command line that say how a data set is to be read."""

    records_per_unit: options.RecordsPerUnit = None
    classes_per_unit: options.ClassesPerUnit = None
    unit: options.Unit = None
    prepare_size: options.PrepareSize = None
    prepare_fit: options.PrepareFit = None
    prepare_colour: options.PrepareColour = None
    prepare_window: options.PrepareWindow = None
    prepare_frame: options.PrepareFrame = None


def build_choices(fields: Mapping[str, object]) -> ReadingChoices:
    """The choices of an owner.

    Args:
        fields: Fields of the form of an upload (`dataset_declaration.DatasetForm`), by their names; None and False are
            left out.

    Raises:
        InvalidInput: A field is out of range, or lacks another one.
    """
    from pydantic import ValidationError

    from datalens_service.services.dataset_declaration import DatasetForm

    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    window = given.get("prepare_window")
    if isinstance(window, tuple):
        given["prepare_window"] = "{} {}".format(*window)
    try:
        return DatasetForm.model_validate(given).choices
    except ValidationError as error:
        raise InvalidInput(describe_error(error)) from error
