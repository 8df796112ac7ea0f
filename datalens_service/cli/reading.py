"""What the command line says of how images are to be read, checked as the form of an upload is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from datalens_service.cli.complaints import describe_error
from datalens_service.errors import InvalidInput

if TYPE_CHECKING:
    from datalens_service.data.reading_choices import ReadingChoices


def build_choices(fields: Mapping[str, object]) -> ReadingChoices:
    """The choices of an owner.

    Args:
        fields: Of the form of an upload (`dataset_declaration.DatasetForm`), by their names; None and False are left
            out.

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
