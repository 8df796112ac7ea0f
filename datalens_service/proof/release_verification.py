"""Checks that an installation signed the files of a release: an archive, packed or not, or a report."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NoReturn

from datalens_service.base.signatures import PublicKey, SignatureInvalid, parse_document, signer, unsigned
from datalens_service.data.export.release_archive import SUMS, SUMS_FORMAT, SUMS_SIGNATURE
from datalens_service.proof import proof_verification
from datalens_service.proof.input_file import is_receipt, read_content
from datalens_service.proof.job_proof import PROOF_FILE, SIGNATURE, ExpectedKey, name_signer
from datalens_service.proof.release_files import ReleaseFiles, is_release, release_files
from datalens_service.proof.removal_receipt import describe_receipt
from datalens_service.proof.time_stamp import TIME_STAMP, check_stampable, examine_time_stamp
from datalens_service.proof.verdict import NotChecked, VerificationResult, VerifiedSubject, judge
from datalens_service.report import document

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

FILES: Final = "files"
SUMS_LINE: Final = "archive signature"
_SUM: Final = re.compile(r"([0-9a-f]{64})  (.+)")
_LARGEST_TEXT: Final = 2**28
_BLOCK: Final = 2**20
_NOT_OF_REPORT: Final = (
    "That what the report says is true: its figures are those that the installation wrote. The proof of the job, "
    "privacy.json, recomputes ε.",
)


def verify_path(
    path: Path, key: PublicKey | None = None, authorities: Sequence[Certificate] = ()
) -> VerificationResult:
    """Check a proof, an archive with its files, the receipt for a removal, or, with a key, a report.

    Args:
        key: The key that has to have signed it; None accepts anybody's.
        authorities: Certificates that may vouch for the time stamp beside the journal of an account; with none it is
            not looked for.

    Raises:
        InvalidInput: It is something else.
    """
    content = read_content(path)
    if authorities:
        check_stampable(content)
        beside = {TIME_STAMP: partial(examine_time_stamp, path, content, authorities)}
        return proof_verification.verify(content, key, beside)
    if is_receipt(content):
        return judge(describe_receipt(content, key))
    if is_release(path):
        return judge(_describe_release(path, content, key))
    if key is not None and _is_report(content):
        return judge(_describe_report(content, key))
    return proof_verification.verify(content, key)


def _describe_release(path: Path, content: bytes, key: PublicKey | None) -> VerifiedSubject:
    """Collect the claims of the proof, that each file is one of its release, and that its installation says so."""
    proof = proof_verification.describe_proof(content, key)
    files = {FILES: partial(_compare_files, path, content, key), SUMS_LINE: partial(_check_sums, path, content, key)}
    place = "a folder" if path.is_dir() else "an archive"
    return proof._replace(given=f"{proof.given}, in {place}", claims={**proof.claims, **files})


def _compare_files(path: Path, proof: bytes, key: PublicKey | None) -> str:
    """Check that each file is as the sums say, that none is missing, and that none was added."""
    with release_files(path) as files:
        if SUMS not in files.names:
            _miss_sums(key)
        stated = _parse_sums(_read(files, SUMS))
        present = set(files.names) - {SUMS, SUMS_SIGNATURE}
        for name in sorted(present ^ stated.keys()):
            raise SignatureInvalid(f"{name} is missing." if name in stated else f"{name} is not in {SUMS}.")
        for name in sorted(present):
            with files.open(name) as file:
                _compare(name, _digest(file), stated)
        _compare(PROOF_FILE, hashlib.sha256(proof).hexdigest(), stated)
        files.check_packing()
    return f"{len(present):,} files are those of {SUMS}, the proof among them."


def _miss_sums(key: PublicKey | None) -> NoReturn:
    missing = f"There is no {SUMS}: nothing shows that these files belong to the proof."
    if key is not None:
        raise SignatureInvalid(missing)
    raise NotChecked(f"{missing} Give {PROOF_FILE} alone to check the proof.")


def _compare(name: str, digest: str, stated: Mapping[str, str]) -> None:
    if digest != stated.get(name):
        raise SignatureInvalid(f"{name} was changed.")


def _check_sums(path: Path, proof: bytes, key: PublicKey | None) -> str:
    """Check that the signer of the sums has the given key or, without one, also signed the proof."""
    expected = _expected_key(proof) if key is None else ExpectedKey(key)
    with release_files(path) as files:
        if SUMS not in files.names:
            raise NotChecked(f"There is no {SUMS} that could be signed.")
        if SUMS_SIGNATURE not in files.names:
            raise SignatureInvalid(f"There is no {SUMS_SIGNATURE}: it was taken away.")
        sums, signature = _read(files, SUMS), _read(files, SUMS_SIGNATURE)
    finding = name_signer(signature, expected)
    of_these = {"format": SUMS_FORMAT, "file": SUMS, "sha256": hashlib.sha256(sums).hexdigest()}
    if unsigned(parse_document(signature)) != of_these:
        raise SignatureInvalid(f"The signature is not of this {SUMS}.")
    return finding


def _expected_key(proof: bytes) -> ExpectedKey:
    """Return the key of the proof, which has to have signed the archive as well."""
    key = signer(proof)
    if key is None:
        raise SignatureInvalid("Nobody signed the proof.")
    return ExpectedKey(key, given=False)


def _parse_sums(sums: bytes) -> dict[str, str]:
    """Parse digests by name.

    Raises:
        SignatureInvalid: The file is not one of sums, or has a name twice.
    """
    try:
        *lines, end = sums.decode().split("\n")
    except ValueError:
        lines, end = [], "not text"
    matches = [_SUM.fullmatch(line) for line in lines]
    stated = {match[2]: match[1] for match in matches if match is not None}
    if end or len(stated) < len(lines):
        raise SignatureInvalid(f"{SUMS} cannot be read.")
    return stated


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _read(files: ReleaseFiles, name: str) -> bytes:
    with files.open(name) as file:
        return file.read(_LARGEST_TEXT)


def _is_report(content: bytes) -> bool:
    try:
        return str(parse_document(content).get("format")).startswith("datalens-report/")
    except SignatureInvalid:
        return False


def _describe_report(content: bytes, key: PublicKey) -> VerifiedSubject:
    audience = "to pass on" if parse_document(content).get("view") == "releasable" else "for the owner"
    claims = {"form": partial(_check_report, content), SIGNATURE: partial(name_signer, content, ExpectedKey(key))}
    return VerifiedSubject(f"report of a job, {audience}", claims, _NOT_OF_REPORT)


def _check_report(content: bytes) -> str:
    document.check(content)
    return "Complete, and as it was sealed."
