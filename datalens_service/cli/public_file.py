"""Public images beside a private data set, as a file of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from datalens_service.cli.specs import SpecOptions

if TYPE_CHECKING:
    from datalens_service.data.dataset import Schema, Upload

PRIVATE_READS = ("reading the upload",)

_NOT_STORED_YET: Final = "public"
"""Stands for the id of public data until they have one, so that a method without a use for them is refused."""


class PublicFile(NamedTuple):
    """Images of a file that its owner declares public."""

    upload: Upload
    format_name: str
    name: str

    @classmethod
    def read(cls, path: Path, license: str | None) -> PublicFile:
        """Read a file, with the licence that its owner declares, if any."""
        from datalens_service.data import detect, read_upload

        upload = read_upload(path)
        declared = {"records_are_public": True, "public_license": license or ""}
        upload = upload._replace(schema=upload.schema.model_copy(update=declared))
        return cls(upload, detect(path), path.name)

    def check(self, schema: Schema, spec_options: SpecOptions) -> SpecOptions:
        """The options with public data, refused where the images have another size."""
        from datalens_service.methods.public_start import check_same_size

        check_same_size(schema, self.upload.schema)
        return replace(spec_options, public_data=_NOT_STORED_YET)
