"""Whoever gives `datalens verify` the wrong file is told which one it is and which one to give."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from datalens_service.base.errors import InvalidInput
from datalens_service.proof.input_file import read_content
from datalens_service.proof.proof_verification import verify
from example_proof import EXAMPLE_PROOF

PROOF = json.dumps(EXAMPLE_PROOF).encode()
CARD = json.dumps(EXAMPLE_PROOF["card"]).encode()


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_json", ".json"), content)
    return buffer.getvalue()


def images() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, train_images=np.zeros(3))
    return buffer.getvalue()


GIVEN = {
    "the card of a job": CARD,
    "the owner's report of a job": b'{"format": "datalens-report/2", "view": "owner"}',
    "the report of a job to pass on": b'{"format": "datalens-report/2", "view": "releasable"}',
    "the report of a job;": b'{"format": "datalens-report/2"}',
    "a proof of a newer version": b'{"format": "datalens-bundle/9"}',
    "JSON of another kind": b'{"format": 3}',
    "an empty file": b"",
    "a safetensors file": save({"basis": np.zeros(3)}, {"kind": "gaussian"}),
    "images as NPZ": images(),
    "images as Parquet": b"PAR1....",
    "a picture": b"\x89PNG",
    "a page, as reports are": b"<!DOCTYPE html><html>",
    "a tar archive": b"x" * 257 + b"ustar",
    "a zip archive without a privacy.json": zipped(card_json=CARD),
    "not JSON": b"{",
}


@pytest.mark.parametrize("name", GIVEN)
def test_another_file_is_named_and_so_is_the_right_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / "given"
    path.write_bytes(GIVEN[name])
    with pytest.raises(InvalidInput) as error:
        verify(read_content(path))
    assert f"This is {name}" in error.value.detail
    assert "Give the job's privacy.json" in error.value.detail


@pytest.mark.parametrize(
    "content", [b"[]", b"{}", b"3", b"null", b"\xff\xfe", b'{"format": nonsense}', b"PK\x03\x04", b"[" * 10**5, b"\x08"]
)
def test_what_is_nothing_of_ours_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"privacy\.json"):
        verify(read_content(path))


def test_the_archive_of_a_release_is_as_good_as_the_proof_in_it(tmp_path: Path) -> None:
    packed, folder = tmp_path / "release.zip", tmp_path / "release"
    packed.write_bytes(zipped(privacy_json=PROOF, card_json=CARD))
    folder.mkdir()
    (folder / "privacy.json").write_bytes(PROOF)
    for path in (packed, folder):
        verdict = verify(read_content(path))
        assert (verdict.holds, verdict.given) == (True, "proof of one job, publishable")


def test_an_archive_with_a_card_under_the_name_of_the_proof_is_named(tmp_path: Path) -> None:
    path = tmp_path / "release.zip"
    path.write_bytes(zipped(privacy_json=CARD))
    with pytest.raises(InvalidInput, match="the card of a job"):
        verify(read_content(path))


def test_a_folder_without_a_proof_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"a folder without a privacy\.json"):
        read_content(tmp_path)


def test_a_damaged_archive_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "release.zip"
    content = bytearray(zipped(privacy_json=PROOF * 3))
    content[40:80] = b"\0" * 40
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="archive"):
        verify(read_content(path))
