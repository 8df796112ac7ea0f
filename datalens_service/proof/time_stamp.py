"""Checks, from two files alone, that a time stamp authority (RFC 3161) saw the head of a journal, and tells when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from datalens_service.base.errors import InvalidInput, LedgerCorrupt
from datalens_service.base.signatures import parse_document
from datalens_service.proof.input_file import proof_format
from datalens_service.proof.job_proof import ACCOUNT_FILE, PROOF_FORMAT
from datalens_service.proof.verdict import NotChecked

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

TIME_STAMP: Final = "time stamp"
TIME_STAMP_FILE: Final = "account-proof.tsr"
TIME_STAMP_TYPE: Final = "application/timestamp-reply"
_LARGEST: Final = 2**17


def examine_time_stamp(proof: Path, content: bytes, authorities: Sequence[Certificate]) -> str:
    """Check the time stamp that lies beside the journal of an account, and say of when it is.

    Args:
        content: The proof of an account, whose chain was found to end with its head.
        authorities: Certificates that may vouch for the time; they had to be valid then, not now.

    Raises:
        LedgerCorrupt: It is of another head, or nobody among the authorities vouches for it.
        NotChecked: There is none, or nothing to check it with.
    """
    try:
        from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response
    except ModuleNotFoundError:
        raise NotChecked("It takes datalens-service[timestamp].") from None
    path = proof.with_name(TIME_STAMP_FILE)
    if not path.is_file():
        raise NotChecked(f"There is no {TIME_STAMP_FILE} beside it.")
    head = bytes.fromhex(parse_document(content)["account"]["head"]["hash"])
    try:
        stamp = decode_timestamp_response(path.read_bytes()[:_LARGEST])
        VerifierBuilder(roots=list(authorities)).build().verify_message(stamp, head)
    except (ValueError, VerificationError) as error:
        raise LedgerCorrupt(f"{TIME_STAMP_FILE} does not vouch for this head: {error}.") from None
    return f"An authority that you named saw this head by {stamp.tst_info.gen_time:%Y-%m-%d %H:%M:%S} UTC."


def check_stampable(content: bytes) -> None:
    """Refuse a proof that has no time stamp.

    Raises:
        InvalidInput: It is the proof of one job.
    """
    if proof_format(content) == PROOF_FORMAT:
        raise InvalidInput(f"Time stamps are about the journal of an account, {ACCOUNT_FILE}, which its owner has.")
