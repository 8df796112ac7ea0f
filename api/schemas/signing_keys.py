"""The public key of an installation, as it is shown."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field

from datalens_service.signatures import ALGORITHM, PublicKey


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
