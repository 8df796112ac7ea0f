"""Files encrypted in chunks: they come back as they were, or not at all."""

import io
import os

import pytest

from datalens_service.base.errors import FileDamaged
from datalens_service.store.datasets import sealing
from datalens_service.store.datasets.sealing import seal, unseal

KEY = bytes(range(32))
HEAD = 36
CHUNK = 64
SEALED = CHUNK + 16


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "CHUNK_BYTES", CHUNK)


def sealed(content: bytes, name: str = "ds_1/train", key: bytes = KEY) -> bytes:
    target = io.BytesIO()
    seal(io.BytesIO(content), target, key, name)
    return target.getvalue()


def opened(content: bytes, name: str = "ds_1/train", key: bytes = KEY) -> bytes:
    target = io.BytesIO()
    unseal(io.BytesIO(content), target, key, name)
    return target.getvalue()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7])
def test_a_file_comes_back_as_it_was(size: int) -> None:
    content = os.urandom(size)
    assert opened(sealed(content)) == content


def test_nothing_of_the_content_is_in_the_sealed_file_and_no_two_are_alike() -> None:
    content = b"private record! " * 40
    first, second = sealed(content), sealed(content)
    assert b"private" not in first
    assert first[4:HEAD] != second[4:HEAD]
    assert first[HEAD : HEAD + CHUNK] != second[HEAD : HEAD + CHUNK]
    assert first[HEAD : HEAD + CHUNK] != first[HEAD + SEALED : HEAD + SEALED + CHUNK]


def test_each_changed_bit_is_noticed() -> None:
    whole = sealed(b"x" * (CHUNK + 10))
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1
        with pytest.raises(FileDamaged):
            opened(bytes(broken))


THREE = 3 * CHUNK
CHANGES = {
    "last chunk left out": lambda it: it[: HEAD + 2 * SEALED],
    "first chunk left out": lambda it: it[:HEAD] + it[HEAD + SEALED :],
    "chunks exchanged": lambda it: (
        it[:HEAD] + it[HEAD + SEALED : HEAD + 2 * SEALED] + it[HEAD : HEAD + SEALED] + it[HEAD + 2 * SEALED :]
    ),
    "chunk repeated": lambda it: it + it[-SEALED:],
    "bytes appended": lambda it: it + b"x",
    "end cut": lambda it: it[:-1],
    "head alone": lambda it: it[:HEAD],
    "head cut": lambda it: it[: HEAD - 1],
    "empty": lambda it: b"",
}


@pytest.mark.parametrize("change", CHANGES)
def test_chunks_are_neither_moved_nor_left_out_unseen(change: str) -> None:
    whole = sealed(os.urandom(THREE))
    with pytest.raises(FileDamaged):
        opened(CHANGES[change](whole))


def test_a_file_opens_under_its_own_name_and_key_only() -> None:
    whole = sealed(b"content")
    with pytest.raises(FileDamaged):
        opened(whole, name="ds_2/train")
    with pytest.raises(FileDamaged):
        opened(whole, key=bytes(32))
