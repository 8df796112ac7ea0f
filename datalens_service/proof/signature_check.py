"""Where a document comes from: the line of a verdict about its signature."""

from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from datalens_service.signatures import PublicKey, SignatureInvalid, signer

SIGNATURE: Final = "signature"
Status = Literal["holds", "contradiction", "not checked"]


class Line(BaseModel):
    """One claim of a proof and what came of it."""

    model_config = ConfigDict(frozen=True)

    check: str
    status: Status
    finding: str


class ExpectedKey(NamedTuple):
    """A key that has to have signed something. If no reader named it (`given`), it signed the proof in the same
    archive, and nobody vouched for it."""

    key: PublicKey
    given: bool = True


def signature_line(content: bytes, expected: ExpectedKey | None) -> Line:
    """Who signed a document, and whether that is who had to.

    Args:
        content: Of the file; it may come from anybody.
        expected: Who has to have signed it; None accepts anybody, and nobody.
    """
    try:
        signing_key = signer(content)
    except SignatureInvalid as error:
        return Line(check=SIGNATURE, status="contradiction", finding=str(error))
    if expected is None:
        return _line_of_anybody(signing_key)
    if signing_key is None:
        reason = "a key was given" if expected.given else "the proof is signed"
        return Line(check=SIGNATURE, status="contradiction", finding=f"Not signed, though {reason}.")
    if signing_key != expected.key:
        other = "the given one" if expected.given else "that of the proof"
        finding = f"Signed by key {signing_key.key_id}, not by {other}, {expected.key.key_id}."
        return Line(check=SIGNATURE, status="contradiction", finding=finding)
    return Line(check=SIGNATURE, status="holds", finding=_name_signer(expected))


def _line_of_anybody(key: PublicKey | None) -> Line:
    if key is None:
        return Line(check=SIGNATURE, status="not checked", finding="Not signed: anybody may have made it.")
    finding = f"Signed by key {key.key_id}. Nobody vouched for it: no --key was given."
    return Line(check=SIGNATURE, status="holds", finding=finding)


def _name_signer(expected: ExpectedKey) -> str:
    key_id = expected.key.key_id
    return f"Signed by the given key, {key_id}." if expected.given else f"Signed by key {key_id}, as the proof is."
