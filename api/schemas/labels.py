"""Names, tags and notes as requests give them."""

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from datalens_service.base.fields import Strict

_NO_NUL: Final = r"^[^\x00]*$"
_TAGS: Final = 20

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=_NO_NUL)]
Notes = Annotated[str, StringConstraints(max_length=2000, pattern=_NO_NUL)]
Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=40, pattern=r"^[^\x00,\"\\]+$")]


class LabelChanges(Strict):
    """Changes of labels, which are for finding things; whatever is left out stays. No price depends on them."""

    tags: list[Tag] | None = Field(
        default=None, max_length=_TAGS, description="All tags; they replace the earlier ones."
    )
    notes: Notes | None = Field(default=None, description="Free text; no report and no download has it.")

    def changed(self) -> dict[str, Any]:
        """New values by name; tags in order, each once."""
        values = self.model_dump(exclude_none=True)
        if self.tags is not None:
            values["tags"] = sorted(set(self.tags))
        return values


class DatasetChanges(LabelChanges):
    """New labels of a dataset."""

    name: Name | None = Field(default=None, description="Its new name.")


class JobChanges(LabelChanges):
    """New labels of a job."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200, pattern=_NO_NUL)] | None = Field(
        default=None, description="The new name; empty for none."
    )
