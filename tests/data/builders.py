"""Small archives and images that the tests of this folder are made of."""

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Contents = Mapping[str, bytes]


def zipped(contents: Contents, compression: int = zipfile.ZIP_DEFLATED, mode: int | None = None) -> bytes:
    """An archive of these files; `mode` is what UNIX says of each, by default that it is a file, or a folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in contents.items():
            # Set afterwards: the constructor would cut a name at a NUL.
            entry = zipfile.ZipInfo("placeholder")
            folder = name.endswith("/")
            entry.filename, entry.compress_type = name, zipfile.ZIP_STORED if folder else compression
            entry.external_attr = (mode or (0o40755 if folder else 0o100644)) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def write_zip(path: Path, contents: Contents, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    path.write_bytes(zipped(contents, compression))
    return path


def tarred(*members: tuple[str, bytes, dict[str, Any]], end: bool = True) -> bytes:
    """An archive of these files, each with attributes that `tarfile` would set otherwise, and whether it has an end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data, changes in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for attribute, value in changes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(data))
    whole = buffer.getvalue()
    return whole if end else whole[: whole.rstrip(b"\0").__len__() // 512 * 512]


def write_npz(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def npy_bytes(values: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def damaged_copies(whole: bytes, copies: int) -> Iterator[bytes]:
    """The same bytes with one to three of them changed."""
    rng = np.random.default_rng(0)
    for _ in range(copies):
        data = bytearray(whole)
        for position in rng.integers(0, len(data), rng.integers(1, 4)):
            data[position] = rng.integers(0, 256)
        yield bytes(data)


def encoded(image: Image.Image, file_format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=file_format, **options)
    return buffer.getvalue()


def grey(value: int = 0, size: tuple[int, int] = (8, 8)) -> bytes:
    return encoded(Image.new("L", size, value))


def random_images(n: int, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
