"""The input of `datalens verify`: a proof, an archive that holds one, or something else by its name.

A reader who gives the wrong file learns which one it is and which one to give; that is no verdict on anybody.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic_core import from_json

from datalens_service.base.errors import InvalidInput
from datalens_service.data.intake.untrusted.zip_archive import starts_like_zip
from datalens_service.proof.job_proof import ACCOUNT_FORMAT, EARLIER_ACCOUNT_FORMAT, PROOF_FILE, PROOF_FORMAT
from datalens_service.proof.removal_receipt import RECEIPT_FORMAT

_LARGEST_PROOF: Final = 2**28
_GIVE: Final = (
    f"Give the job's {PROOF_FILE}. It lies beside the other files of `datalens train`, in the archive of a release, "
    "and in ⟦job_bundle⟧."
)
_CARD: Final = "the card of a job"
_REPORTS: Final = {"owner": "the owner's report of a job", "releasable": "the report of a job to pass on"}
_TAR_MAGIC: Final = slice(257, 262)
_SAFETENSORS_LENGTH: Final = 8


def read_content(path: Path) -> bytes:
    """Read the content of a file; of an archive of a release, packed or not, that of the proof in it.

    Raises:
        InvalidInput: The archive holds none.
    """
    if path.is_dir():
        path = path / PROOF_FILE
        if not path.is_file():
            _refuse(f"a folder without a {PROOF_FILE}")
    if starts_like_zip(path):
        return _proof_of_archive(path)
    with path.open("rb") as file:
        return file.read(_LARGEST_PROOF)


def proof_format(content: bytes) -> str:
    """Return the format of a proof.

    Raises:
        InvalidInput: It is none; names what was given and what to give instead.
    """
    document = _json(content)
    format = document.get("format") if isinstance(document, dict) else None
    if format not in (PROOF_FORMAT, ACCOUNT_FORMAT, EARLIER_ACCOUNT_FORMAT):
        _refuse(_name_of_document(document))
    return str(format)


def is_receipt(content: bytes) -> bool:
    """Return True if this is the receipt for the removal of a tenant."""
    try:
        document = from_json(content)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("format") == RECEIPT_FORMAT


def _proof_of_archive(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            if PROOF_FILE not in archive.namelist():
                _refuse(_name_of_archive(archive.namelist()))
            with archive.open(PROOF_FILE) as file:
                return file.read(_LARGEST_PROOF)
    # A damaged archive fails in as many ways as there are compressions.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"The archive cannot be read. {_GIVE}") from error


def _json(content: bytes) -> Any:
    try:
        return from_json(content)
    except ValueError:
        _refuse(next((name for name, fits in _KINDS.items() if fits(content)), "not JSON"))


def _name_of_document(document: Any) -> str:
    """Name a JSON file of ours by its `format`, because files are renamed."""
    format = str(document.get("format", "")) if isinstance(document, dict) else ""
    if format.startswith("datalens-card/"):
        return _CARD
    if format.startswith("datalens-report/"):
        return _REPORTS.get(str(document.get("view")), "the report of a job")
    if format.startswith("datalens-bundle/"):
        return "a proof of a newer version of this program"
    return "JSON of another kind"


def _name_of_archive(names: list[str]) -> str:
    if names and all(name.endswith(".npy") for name in names):
        return "images as NPZ"
    return f"a zip archive without a {PROOF_FILE}"


def _is_safetensors(content: bytes) -> bool:
    if len(content) <= _SAFETENSORS_LENGTH:
        return False
    (length,) = struct.unpack("<Q", content[:_SAFETENSORS_LENGTH])
    return bool(length <= len(content) - _SAFETENSORS_LENGTH and content[_SAFETENSORS_LENGTH:].startswith(b"{"))


_KINDS: Final[dict[str, Callable[[bytes], bool]]] = {
    "an empty file": lambda content: not content,
    "a safetensors file, as generators are": _is_safetensors,
    "images as Parquet": lambda content: content.startswith(b"PAR1"),
    "a picture": lambda content: content.startswith((b"\x89PNG", b"\xff\xd8\xff")),
    "a page, as reports are": lambda content: content.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")),
    "a tar archive": lambda content: content[_TAR_MAGIC] == b"ustar" or content.startswith(b"\x1f\x8b"),
}
"""Tests of the first bytes, by the name of the kind of file."""


def _refuse(name: str) -> NoReturn:
    raise InvalidInput(f"This is {name}; `datalens verify` reads a proof. {_GIVE}")
