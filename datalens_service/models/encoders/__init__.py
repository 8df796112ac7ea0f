"""Public encoders: functions of an image that everybody has; this union is their registry."""

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from datalens_service.base.errors import InvalidInput
from datalens_service.models.encoders.base import Encoder
from datalens_service.models.encoders.imagenet_lite0 import ImagenetLite0
from datalens_service.models.encoders.onnx_file import OnnxEncoder
from datalens_service.models.encoders.scattering import ScatteringEncoder

AnyEncoder = ScatteringEncoder | ImagenetLite0 | OnnxEncoder
"""Kinds of encoders; `name` tells them apart."""

_ADAPTER: Final[TypeAdapter[AnyEncoder]] = TypeAdapter(AnyEncoder)


def read_encoder(settings: dict[str, Any]) -> AnyEncoder:
    """Return the encoder that the settings of a released classifier name.

    Raises:
        InvalidInput: This version has no such encoder, or one with other weights.
    """
    try:
        return _ADAPTER.validate_python(settings)
    except ValidationError:
        raise InvalidInput("The classifier names an encoder that this version does not have.") from None


__all__ = ["AnyEncoder", "Encoder", "ImagenetLite0", "OnnxEncoder", "ScatteringEncoder", "read_encoder"]
