"""Labelled image sets: reading, keeping, assigning to shards and exporting them.

Names are loaded when they are first used: a module of this room that needs no images loads no NumPy.
"""

from typing import TYPE_CHECKING

from datalens_service.base.lazy_names import load_names

if TYPE_CHECKING:
    from datalens_service.data.intake.readers import READERS
    from datalens_service.data.intake.reading import detect, read_source, read_upload, read_with_notices
    from datalens_service.data.intake.reading_choices import ReadingChoices
    from datalens_service.data.privacy_units import UnitDeclaration

__getattr__ = load_names(
    __name__,
    {
        "intake.readers": "READERS",
        "intake.reading_choices": "ReadingChoices",
        "privacy_units": "UnitDeclaration",
        "intake.reading": "detect read_source read_upload read_with_notices",
    },
)

__all__ = [
    "READERS", "ReadingChoices", "UnitDeclaration", "detect", "read_source", "read_upload", "read_with_notices",
]  # fmt: skip
