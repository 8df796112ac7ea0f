"""Files encrypted in chunks, so that whoever holds the store can neither read nor change them unseen.

    file   = "DLS1" | salt (32 bytes) | sealed chunk 0 | sealed chunk 1 | …
    key    = HKDF-SHA-256(key of the owner, salt, "datalens file" | name)
    chunk  = AES-256-GCM(key, nonce = number (11 bytes) | 1 if it is the last else 0, at most 1 MiB)

This is the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár 2015, "Online Authenticated-Encryption and its
Nonce-Reuse Misuse-Resistance"). Each file has a key of its own, so numbers serve as nonces. A chunk that was changed,
moved, left out or appended, and a file under the name of another, are refused before any of the chunk is written.
The length is not hidden.
"""

import os
from typing import IO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from datalens_service.base.errors import FileDamaged

KEY_BYTES: Final = 32
CHUNK_BYTES: Final = 2**20
_TAG_BYTES: Final = 16
_SALT_BYTES: Final = 32
_MAGIC: Final = b"DLS1"


def seal(source: IO[bytes], target: IO[bytes], key: bytes, name: str) -> None:
    """Encrypt a file.

    Args:
        key: Key of the owner, 32 bytes.
        name: Name of the file in the store; it opens under no other.
    """
    salt = os.urandom(_SALT_BYTES)
    cipher = _cipher(key, salt, name)
    target.write(_MAGIC + salt)
    number, chunk = 0, source.read(CHUNK_BYTES)
    while following := source.read(CHUNK_BYTES):
        target.write(cipher.encrypt(_nonce(number, last=False), chunk, None))
        number, chunk = number + 1, following
    target.write(cipher.encrypt(_nonce(number, last=True), chunk, None))


def unseal(source: IO[bytes], target: IO[bytes], key: bytes, name: str) -> None:
    """Decrypt what `seal` wrote. What `target` holds counts only when this has returned.

    Raises:
        FileDamaged: It is not what was sealed under this name with this key.
    """
    head = source.read(len(_MAGIC) + _SALT_BYTES)
    if not head.startswith(_MAGIC) or len(head) != len(_MAGIC) + _SALT_BYTES:
        raise altered_records()
    cipher = _cipher(key, head[len(_MAGIC) :], name)
    number, chunk = 0, source.read(CHUNK_BYTES + _TAG_BYTES)
    while following := source.read(CHUNK_BYTES + _TAG_BYTES):
        target.write(_opened(cipher, _nonce(number, last=False), chunk))
        number, chunk = number + 1, following
    target.write(_opened(cipher, _nonce(number, last=True), chunk))


def _cipher(key: bytes, salt: bytes, name: str) -> AESGCM:
    if len(key) != KEY_BYTES:
        raise ValueError(f"The key needs {KEY_BYTES} bytes.")
    derived = HKDF(SHA256(), KEY_BYTES, salt, b"datalens file\0" + name.encode()).derive(key)
    return AESGCM(derived)


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _opened(cipher: AESGCM, nonce: bytes, chunk: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, chunk, None)
    except (InvalidTag, ValueError) as error:
        raise altered_records() from error


def altered_records() -> FileDamaged:
    """Return the error to raise where the store holds other bytes."""
    return FileDamaged("A file in the object store was altered, or the key is wrong; restore the object or the key.")
