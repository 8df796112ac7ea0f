"""Public encoders: functions of an image that everybody has; this union is their registry."""

from datalens_service.models.encoders.base import Encoder
from datalens_service.models.encoders.imagenet_lite0 import ImagenetLite0
from datalens_service.models.encoders.scattering import ScatteringEncoder

AnyEncoder = ScatteringEncoder | ImagenetLite0
"""Kinds of encoders, told apart by `name`."""

__all__ = ["AnyEncoder", "Encoder", "ImagenetLite0", "ScatteringEncoder"]
