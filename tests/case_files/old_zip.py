"""Zips that `zipfile` does not write: names in any bytes, twice the same name, and PKWARE's traditional encryption.

Source: PKWARE, .ZIP File Format Specification 6.3.10, sections 4.3 and 6.1.
"""

import struct
import zlib
from collections.abc import Collection
from typing import NamedTuple

_DATE = 33  # the first of January 1980
_ENCRYPTED = 1


class Entry(NamedTuple):
    """A stored file.

    Attributes:
        name: Its bytes in the archive, in no declared encoding.
        content: What is stored.
        plain: What that is when it was decrypted; None: the same.
    """

    name: bytes
    content: bytes
    plain: bytes | None = None

    def header(self) -> bytes:
        """The fields that an entry and its line in the directory share, from the version to the extra field."""
        plain = self.content if self.plain is None else self.plain
        flags = 0 if self.plain is None else _ENCRYPTED
        sizes = (zlib.crc32(plain), len(self.content), len(plain), len(self.name), 0)
        return struct.pack("<HHHHHLLLHH", 20, flags, 0, 0, _DATE, *sizes)


def old_zip(entries: Collection[Entry]) -> bytes:
    """An archive as DOS wrote it."""
    body, directory = b"", b""
    for entry in entries:
        rest = struct.pack("<HHHLL", 0, 0, 0, 0, len(body))
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + entry.header() + rest + entry.name
        body += b"PK\x03\x04" + entry.header() + entry.name + entry.content
    end = struct.pack("<HHHHLLH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def encrypted(name: bytes, content: bytes, password: bytes) -> Entry:
    """An entry under a password."""
    check = zlib.crc32(content) >> 24
    keys = _Keys()
    for byte in password:
        keys.update(byte)
    return Entry(name, bytes(keys.encrypt(byte) for byte in bytes(11) + bytes([check]) + content), content)


class _Keys:
    def __init__(self) -> None:
        self.first, self.second, self.third = 0x12345678, 0x23456789, 0x34567890

    def encrypt(self, byte: int) -> int:
        word = self.third & 0xFFFF | 2
        self.update(byte)
        return byte ^ (word * (word ^ 1) >> 8 & 0xFF)

    def update(self, byte: int) -> None:
        self.first = _crc(self.first, byte)
        self.second = ((self.second + (self.first & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        self.third = _crc(self.third, self.second >> 24)


def _crc(value: int, byte: int) -> int:
    return ~zlib.crc32(bytes([byte]), ~value & 0xFFFFFFFF) & 0xFFFFFFFF
