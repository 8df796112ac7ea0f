"""Signatures of documents that leave: Ed25519 (RFC 8032) over canonical JSON. No database here.

    signed bytes = "datalens-signature/1\\n" + JSON of the document without its member `signature`:
                   keys sorted, no spaces, UTF-8

One installation has one key for good: HKDF-SHA256 (RFC 5869) of its secret. A signature names the installation that
issued a document; it does not prove that its content is true (docs/decisions/0008-signing-what-leaves.md).
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from pydantic import Field, ValidationError

from datalens_service.base.errors import InvalidInput
from datalens_service.base.fields import Frozen

ALGORITHM: Final = "Ed25519"
MEMBER: Final = "signature"

_DERIVATION: Final = b"datalens signing key v1"
_DOMAIN: Final = b"datalens-signature/1\n"
_KEY_BYTES: Final = 32
_KEY_ID_LENGTH: Final = 16
_LARGEST_KEY_FILE: Final = 4096
_PEM_HEADER: Final = "-----BEGIN"


class SignatureInvalid(ValueError):
    """A document is not as it was signed, or was signed by another key."""


class Signature(Frozen):
    """The signature of a document, with the key of its issuer."""

    algorithm: Literal["Ed25519"]
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$", description="First digits of the SHA-256 of the public key.")
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$", description="32 bytes, hexadecimal.")
    value: str = Field(pattern=r"^[0-9a-f]{128}$", description="64 bytes, hexadecimal.")


@dataclass(frozen=True)
class PublicKey:
    """The public key of an installation, by which signatures are checked."""

    raw: bytes

    @property
    def key_id(self) -> str:
        """Return a short name of the key, to be compared."""
        return hashlib.sha256(self.raw).hexdigest()[:_KEY_ID_LENGTH]

    @property
    def hex(self) -> str:
        """Return the key as 64 digits."""
        return self.raw.hex()

    @property
    def pem(self) -> str:
        """Return the key as other programs read it (SubjectPublicKeyInfo)."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class SigningKey:
    """The private key of an installation.

    Args:
        secret: Secret of the installation; the same secret gives the same key in every process.
    """

    def __init__(self, secret: bytes) -> None:
        derived = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_DERIVATION).derive(secret)
        self._key = Ed25519PrivateKey.from_private_bytes(derived)
        self.public: Final = PublicKey(self._key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.public.key_id})"

    def sign(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document with its signature as the last member; equal documents get equal signatures.

        Args:
            document: Any JSON object; a signature that it has is replaced.
        """
        value = self._key.sign(signed_bytes(document)).hex()
        signature = Signature(algorithm=ALGORITHM, key_id=self.public.key_id, public_key=self.public.hex, value=value)
        return {**unsigned(document), MEMBER: signature.model_dump()}


def unsigned(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without its signature."""
    return {name: value for name, value in document.items() if name != MEMBER}


def signed_bytes(document: dict[str, Any]) -> bytes:
    """Return the bytes that a signature of the document covers.

    Raises:
        SignatureInvalid: The document has numbers or characters that canonical JSON cannot hold.
    """
    try:
        text = json.dumps(
            unsigned(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return _DOMAIN + text.encode()
    except (ValueError, RecursionError) as error:
        raise SignatureInvalid("It holds what no signed document can hold.") from error


def signer(content: bytes) -> PublicKey | None:
    """Return the key that signed a JSON document; None if it carries no signature.

    Raises:
        SignatureInvalid: It carries one that does not fit.
    """
    document = parse_document(content)
    given = document.get(MEMBER)
    if given is None:
        return None
    try:
        signature = Signature.model_validate(given)
    except ValidationError as error:
        raise SignatureInvalid("The signature is not of a form that this program knows.") from error
    key = PublicKey(bytes.fromhex(signature.public_key))
    if signature.key_id != key.key_id:
        raise SignatureInvalid("The id of the key is not that of the public key beside it.")
    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(bytes.fromhex(signature.value), signed_bytes(document))
    except (InvalidSignature, ValueError) as error:
        raise SignatureInvalid("The document was changed after it was signed.") from error
    return key


def public_key(text: str) -> PublicKey:
    """Read a public key as people have it: 64 hexadecimal digits, PEM, or the name of a file with one of the two.

    Raises:
        InvalidInput: It is none of them.
    """
    text = text.strip()
    path = None if "\n" in text or _is_hexadecimal(text) else Path(text)
    if path is not None:
        text = _content(path)
    if _is_hexadecimal(text):
        return PublicKey(bytes.fromhex(text))
    if text.count(_PEM_HEADER) > 1:
        raise InvalidInput("The file has several keys. Give one with the key alone that you expect.")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(_NO_KEY) from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(_NO_KEY)
    return PublicKey(key.public_bytes_raw())


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_KEY_FILE).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(_NO_KEY) from error


_NO_KEY: Final = (
    "The key is not a public key of Ed25519. Give 64 hexadecimal digits, PEM, or a file with one of them, as "
    "⟦public_key⟧ has it."
)


def _is_hexadecimal(text: str) -> bool:
    return len(text) == 2 * _KEY_BYTES and all(digit in "0123456789abcdefABCDEF" for digit in text)


def parse_document(content: bytes) -> dict[str, Any]:
    """Parse a JSON object that every program reads in the same way: UTF-8, each name once, finite numbers.

    Raises:
        SignatureInvalid: It is something else, or nested too deeply to be read.
    """
    try:
        document = json.loads(content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SignatureInvalid(
            "It is not JSON that every program reads in the same way: in UTF-8, every name once, every number finite."
        ) from error
    if not isinstance(document, dict):
        raise SignatureInvalid("It is not a JSON object.")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _without_duplicates(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse equal members, of which another program may read the other one: no signature covers both."""
    document = dict(members)
    if len(document) != len(members):
        raise ValueError("a name stands twice")
    return document
