"""Labelled image sets: reading, keeping, assigning to shards and exporting them.

Names are loaded when they are first used: a module of this room that needs no images loads no NumPy.
"""

from typing import TYPE_CHECKING

from datalens_service.base.lazy_names import load_names

if TYPE_CHECKING:
    from datalens_service.data.dataset import Upload
    from datalens_service.data.intake.readers import READERS, recognise_format
    from datalens_service.data.intake.readers.base import ClassNames, Reader
    from datalens_service.data.intake.reading import detect, read_source, read_upload, read_with_notices
    from datalens_service.data.intake.reading_choices import ReadingChoices
    from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS, Limits
    from datalens_service.data.privacy_units import UnitDeclaration

__getattr__ = load_names(
    __name__,
    {
        "dataset": "Upload",
        "intake.readers": "READERS recognise_format",
        "intake.readers.base": "ClassNames Reader",
        "intake.reading_choices": "ReadingChoices",
        "intake.untrusted.limits": "DEFAULT_LIMITS Limits",
        "privacy_units": "UnitDeclaration",
        "intake.reading": "detect read_source read_upload read_with_notices",
    },
)

__all__ = [
    "DEFAULT_LIMITS", "READERS", "ClassNames", "Limits", "Reader", "ReadingChoices", "UnitDeclaration", "Upload",
    "detect", "read_source", "read_upload", "read_with_notices", "recognise_format",
]  # fmt: skip
