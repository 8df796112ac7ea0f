"""Are the files of a release those that an installation signed? An archive, packed or not, and a report."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from datalens_service.data.export.release_archive import SUMS, SUMS_FORMAT, SUMS_SIGNATURE
from datalens_service.errors import ReportIncomplete
from datalens_service.evaluation.report import document
from datalens_service.proof import proof_verification
from datalens_service.proof.input_file import read_content
from datalens_service.proof.job_proof import (
    SIGNATURE,
    ExpectedKey,
    Line,
    contradicted,
    held,
    signature_line,
    unchecked,
)
from datalens_service.proof.proof_verification import Verdict
from datalens_service.signatures import PublicKey, SignatureInvalid, signer

FILES: Final = "files"
SUMS_LINE: Final = "archive signature"
_LARGEST_TEXT: Final = 2**24
_BLOCK: Final = 2**20
_NOT_OF_REPORT: Final = (
    "That what the report says is true: its figures are those that the installation wrote. The proof of the job, "
    "privacy.json, recomputes ε.",
)


class _Files(NamedTuple):
    """The files of an archive.

    Attributes:
        names: Below its root, in any order; one may stand twice.
        open: By name.
    """

    names: tuple[str, ...]
    open: Callable[[str], IO[bytes]]


def verify_path(path: Path, key: PublicKey | None = None) -> Verdict:
    """Check what somebody was handed: a proof, an archive with its files, or, with a key, a report.

    Args:
        key: Of whom it has to be; None accepts any signature, and none.

    Raises:
        InvalidInput: It is something else.
    """
    content = read_content(path)
    if key is not None and _is_report(content):
        return _of_report(content, key)
    verdict = proof_verification.verify(content, key)
    with _archive(path) as files:
        if files is None or SUMS not in files.names:
            return verdict
        expected = _signer(content) if key is None else ExpectedKey(key)
        lines = _lines(files, expected) if verdict.holds else [unchecked(FILES), unchecked(SUMS_LINE)]
    return Verdict.from_lines(verdict.given, (*verdict.lines, *lines), verdict.not_verified)


def _lines(files: _Files, expected: ExpectedKey | None) -> list[Line]:
    """What the sums say of the files, and who signed the sums."""
    sums = _read(files, SUMS)
    complaint = _complaint(files, sums)
    if complaint is not None:
        return [contradicted(FILES, complaint), unchecked(SUMS_LINE)]
    count = len(files.names) - len({SUMS, SUMS_SIGNATURE} & set(files.names))
    return [held(FILES, f"{count:,} files are those of {SUMS}."), _sums_line(files, sums, expected)]


def _sums_line(files: _Files, sums: bytes, expected: ExpectedKey | None) -> Line:
    content = _read(files, SUMS_SIGNATURE) if SUMS_SIGNATURE in files.names else b"{}"
    line = signature_line(content, expected).model_copy(update={"check": SUMS_LINE})
    if line.status != "holds":
        return line
    signed = json.loads(content)
    if (signed.get("format"), signed.get("sha256")) != (SUMS_FORMAT, hashlib.sha256(sums).hexdigest()):
        return contradicted(SUMS_LINE, f"The signature is not of this {SUMS}.")
    return line


def _complaint(files: _Files, sums: bytes) -> str | None:
    """The first file that is not as the sums say, or that they do not know."""
    if len(set(files.names)) < len(files.names):
        return "A file stands twice in the archive."
    stated = _parsed(sums)
    if stated is None:
        return f"{SUMS} cannot be read."
    present = set(files.names) - {SUMS, SUMS_SIGNATURE}
    for name in sorted(present ^ stated.keys()):
        return f"{name} is missing." if name in stated else f"{name} is not in {SUMS}."
    for name in sorted(present):
        with files.open(name) as file:
            if _digest(file) != stated[name]:
                return f"{name} was changed."
    return None


def _parsed(sums: bytes) -> dict[str, str] | None:
    """Digests by name; None if the file is none of sums."""
    try:
        lines = [line.partition("  ") for line in sums.decode().splitlines()]
    except ValueError:
        return None
    return {name: digest for digest, _, name in lines} if all(name for _, _, name in lines) else None


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _read(files: _Files, name: str) -> bytes:
    with files.open(name) as file:
        return file.read(_LARGEST_TEXT)


@contextmanager
def _archive(path: Path) -> Iterator[_Files | None]:
    """The files beside a proof; None where it came alone."""
    if path.is_dir():
        names = (one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file())
        yield _Files(tuple(names), lambda name: (path / name).open("rb"))
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield _Files(tuple(archive.namelist()), archive.open)
    else:
        yield None


def _signer(content: bytes) -> ExpectedKey | None:
    """Who signed the proof has to have signed the archive as well."""
    try:
        key = signer(content)
        return None if key is None else ExpectedKey(key, given=False)
    except SignatureInvalid:
        return None


def _is_report(content: bytes) -> bool:
    try:
        given = json.loads(content)
    except ValueError:
        return False
    return isinstance(given, dict) and str(given.get("format")).startswith("datalens-report/")


def _of_report(content: bytes, key: PublicKey) -> Verdict:
    try:
        document.check(content)
        lines = held("form", "Complete, and as it was sealed."), signature_line(content, ExpectedKey(key))
    except ReportIncomplete as error:
        lines = contradicted("form", error.detail), unchecked(SIGNATURE)
    audience = "to pass on" if json.loads(content).get("view") == "releasable" else "for the owner"
    return Verdict.from_lines(f"report of a job, {audience}", lines, _NOT_OF_REPORT)
