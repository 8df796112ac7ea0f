"""A data set is called like its file unless it is given another name: a label for its owner, and nothing else."""

from __future__ import annotations

import base64
import binascii
import unicodedata
from typing import Final
from urllib.parse import unquote

from datalens_service.errors import InvalidInput

LONGEST: Final = 200

# What programs write where there is no file: curl from a pipe, browsers, HTTP libraries.
_PLACEHOLDERS: Final = frozenset({"-", "blob", "file", "upload"})
_FILE_NAME: Final = "filename"


def label_of(sent: str) -> str | None:
    """The name of a file without folders, printable and no longer than a name may be; None if nothing is left.

    Args:
        sent: As a client sent it: perhaps a path of another system, with what the form cannot hold as %22.
    """
    base = unquote(sent, errors="replace").replace("\\", "/").rpartition("/")[2]
    spaced = "".join(" " if character.isspace() else character for character in unicodedata.normalize("NFC", base))
    name = " ".join("".join(filter(str.isprintable, spaced)).split())[:LONGEST].rstrip()
    nameless = name.startswith(".") or name.lower() in _PLACEHOLDERS
    return None if nameless or not name else name


def label_in(upload_metadata: str | None) -> str | None:
    """The label that the tus header `Upload-Metadata` calls for, if it has a file name.

    Raises:
        InvalidInput: It is not as tus describes it.
    """
    pairs = [pair.strip().split(" ") for pair in (upload_metadata or "").split(",") if pair.strip()]
    for name, *value in pairs:
        if name == _FILE_NAME and value:
            return label_of(_decoded(value))
    return None


def metadata_of(label: str | None) -> dict[str, str]:
    """The header that says what was kept of `Upload-Metadata`."""
    return {} if label is None else {"Upload-Metadata": f"{_FILE_NAME} {base64.b64encode(label.encode()).decode()}"}


def _decoded(value: list[str]) -> str:
    try:
        [encoded] = value
        return base64.b64decode(encoded, validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidInput(
            "⟦upload_metadata⟧ must be `filename`, a blank and the Base64 of the name in UTF-8."
        ) from None
