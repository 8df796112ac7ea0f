"""Where a document comes from: the line of a verdict about its signature."""

from __future__ import annotations

from typing import Final, Literal

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


def signature_line(content: bytes, key: PublicKey | None) -> Line:
    """Who signed a document, and whether that is who had to.

    Args:
        content: Of the file; it may come from anybody.
        key: That has to have signed it; None accepts any, and none.
    """
    try:
        signing_key = signer(content)
    except SignatureInvalid as error:
        return Line(check=SIGNATURE, status="contradiction", finding=str(error))
    if signing_key is None and key is None:
        return Line(check=SIGNATURE, status="not checked", finding="Not signed: anybody may have made it.")
    if signing_key is None:
        return Line(check=SIGNATURE, status="contradiction", finding="Not signed, though a key was given.")
    if key is None:
        finding = f"Signed by key {signing_key.key_id}, whose owner you must know from elsewhere (--key)."
        return Line(check=SIGNATURE, status="holds", finding=finding)
    if key != signing_key:
        finding = f"Signed by key {signing_key.key_id}, not by the given one, {key.key_id}."
        return Line(check=SIGNATURE, status="contradiction", finding=finding)
    return Line(check=SIGNATURE, status="holds", finding=f"Signed by the given key, {key.key_id}.")
