"""The public key with which proofs, reports and archives of this installation can be checked."""

from __future__ import annotations

from typing import Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.deps import ServicesDep
from api.openapi import ok
from datalens_service.signatures import ALGORITHM, PublicKey

router = APIRouter(tags=["downloads"])


class SigningKeyRead(BaseModel):
    """A public key."""

    algorithm: Literal["Ed25519"] = ALGORITHM
    key_id: str = Field(description="First 16 digits of the SHA-256 of the 32 bytes; stands in every signature.")
    public_key: str = Field(description="32 bytes, hexadecimal.")
    pem: str = Field(description="The same as SubjectPublicKeyInfo.")

    @classmethod
    def of(cls, key: PublicKey) -> Self:
        """What is shown of a key."""
        return cls(key_id=key.key_id, public_key=key.hex, pem=key.pem)


@router.get(
    "/v1/signing-key",
    operation_id="getSigningKey",
    summary="Read the key that checks signatures of this installation",
    responses=ok(200, "The public key."),
)
def get_signing_key(opened: ServicesDep) -> SigningKeyRead:
    """Needs no key: whoever was handed a release has none. Note it, and compare it over another channel."""
    return SigningKeyRead.of(opened.signing_key)
