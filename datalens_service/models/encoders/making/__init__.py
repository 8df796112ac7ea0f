"""Encoders from files of weights that others trained: recognised by their shapes, and written as ONNX files."""

from datalens_service.models.encoders.making.export import MadeEncoder, make_encoder

__all__ = ["MadeEncoder", "make_encoder"]
