"""`datalens verify` says who signed what it was given, and catches a forgery that is consistent in itself."""

import hashlib
import json
import shutil
import zipfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidInput
from datalens_service.base.signatures import MEMBER, SigningKey, unsigned
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.release_archive import SUMS, SUMS_SIGNATURE, write_bundle
from datalens_service.proof.job_proof import SIGNATURE
from datalens_service.proof.proof_verification import verify
from datalens_service.proof.release_verification import FILES, SUMS_LINE, verify_path
from datalens_service.proof.verdict import VerificationResult
from datalens_service.report.build import releasable_view
from datalens_service.report.document import compute_seal
from datalens_service.store.database import Database
from datalens_service.store.installation import signing_key
from example_proof import EXAMPLE_PROOF, of_version
from tests.evaluation.conftest import report

from .forging import seal_charges

KEY, OTHER = SigningKey(b"of this house"), SigningKey(b"of a forger")
PROOF = unsigned(EXAMPLE_PROOF)


def file(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def line(verdict: VerificationResult, check: str) -> tuple[str, str]:
    (found,) = [one for one in verdict.lines if one.check == check]
    return found.status, found.finding


def test_a_proof_says_who_signed_it() -> None:
    verdict = verify(file(KEY.sign(PROOF)))
    assert verdict.holds
    status, finding = line(verdict, SIGNATURE)
    assert (status, KEY.public.key_id in finding, "not confirmed" in finding) == ("holds", True, True)
    given = verify(file(KEY.sign(PROOF)), KEY.public)
    assert (given.holds, line(given, SIGNATURE)[0]) == (True, "holds")


def test_a_signature_that_was_taken_away_is_missed() -> None:
    for version in ("0.1.0", "0.9", "1.0.0", "2.3.0"):
        for proof in (of_version(PROOF, version), {**of_version(PROOF, version), MEMBER: None}):
            for key in (None, KEY.public):
                verdict = verify(file(proof), key)
                assert (verdict.holds, line(verdict, SIGNATURE)[0]) == (False, "contradiction")


def test_another_house_is_not_this_one() -> None:
    verdict = verify(file(OTHER.sign(PROOF)), KEY.public)
    assert not verdict.holds
    assert OTHER.public.key_id in (verdict.contradiction or "")
    assert KEY.public.key_id in (verdict.contradiction or "")


def test_a_forgery_whose_chain_was_made_anew_is_caught() -> None:
    minute = "2026-01-05T10:41:00Z"
    forged = deepcopy(KEY.sign(PROOF))
    forged["charges"][0]["minute"] = minute
    seal_charges(forged)
    verdict = verify(file(forged))
    assert (verdict.holds, line(verdict, SIGNATURE)) == (
        False,
        ("contradiction", "The document was changed after it was signed."),
    )
    assert verify(file(OTHER.sign(forged))).holds, "consistent, and of somebody else"
    assert not verify(file(OTHER.sign(forged)), KEY.public).holds


def archive(folder: Path, proof: dict[str, Any], key: SigningKey = KEY) -> Path:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (20, 28, 28, 1), dtype=np.uint8), np.arange(20, dtype=np.int64) % 10
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    WRITERS["npz"].write(folder / "images", WrittenImages(images, labels, schema, PROOF["card"]))
    further = {"privacy.json": file(proof)}
    write_bundle(
        folder / "release.zip",
        folder / "images",
        "npz",
        PROOF["card"],
        drawn=DrawnImages(20),
        name="t",
        spdx="other",
        further=further,
        key=key,
    )
    return folder / "release.zip"


def repacked(path: Path, out: Path, *, resum: bool, drop: str = "", **changes: bytes) -> Path:
    """The archive with files replaced, and their sums made anew if `resum`."""
    with zipfile.ZipFile(path) as source:
        files = {name: source.read(name) for name in source.namelist() if name != drop}
    files |= {name.replace("__", "."): content for name, content in changes.items()}
    if resum:
        names = sorted(files.keys() - {SUMS, SUMS_SIGNATURE})
        files[SUMS] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in names).encode()
    with zipfile.ZipFile(out, "w") as target:
        for name, content in files.items():
            target.writestr(name, content)
    return out


def test_an_archive_is_covered_to_its_last_file(tmp_path: Path) -> None:
    path = archive(tmp_path, KEY.sign(PROOF))
    packed = verify_path(path, KEY.public)
    assert (packed.holds, line(packed, FILES)[0], line(packed, SUMS_LINE)[0]) == (True, "holds", "holds")
    with zipfile.ZipFile(path) as opened:
        opened.extractall(tmp_path / "unpacked")
        names = opened.namelist()
    assert verify_path(tmp_path / "unpacked", KEY.public).holds
    assert verify_path(path).holds
    for name in names:
        changed = tmp_path / "changed"
        shutil.copytree(tmp_path / "unpacked", changed)
        content = (changed / name).read_bytes()
        (changed / name).write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        try:
            assert not verify_path(changed, KEY.public).holds, name
        except InvalidInput:
            assert name == "privacy.json"
        shutil.rmtree(changed)


def test_a_key_that_nobody_gave_is_never_called_the_given_one(tmp_path: Path) -> None:
    path = archive(tmp_path, KEY.sign(PROOF))
    (tmp_path / "other").mkdir()
    without = repacked(path, tmp_path / "without.zip", resum=False, drop=SUMS_SIGNATURE)
    for given in (path, without, archive(tmp_path / "other", KEY.sign(PROOF), OTHER)):
        lines = [one for one in verify_path(given).lines if one.check in (SIGNATURE, SUMS_LINE)]
        assert not any("given one" in one.finding or "given key" in one.finding for one in lines)
        assert not any("a key was given" in one.finding for one in lines)
        assert all(KEY.public.key_id in one.finding for one in lines if one.status == "holds")
    assert line(verify_path(path), SUMS_LINE)[1] == f"Signed by key {KEY.public.key_id}, as the proof is."
    assert line(verify_path(path, KEY.public), SUMS_LINE)[1] == f"Signed by the given key, {KEY.public.key_id}."


@pytest.mark.parametrize("resum", [False, True])
def test_a_file_that_was_exchanged_is_noticed_though_the_sums_were_made_anew(tmp_path: Path, resum: bool) -> None:
    path = archive(tmp_path, KEY.sign(PROOF))
    forged = repacked(path, tmp_path / "forged.zip", resum=resum, README__md=b"# Not what was released\n")
    for key in (None, KEY.public):
        verdict = verify_path(forged, key)
        assert not verdict.holds
        assert line(verdict, SUMS_LINE if resum else FILES)[0] == "contradiction"


def test_a_signature_of_the_sums_cannot_be_left_out_or_made_by_somebody_else(tmp_path: Path) -> None:
    path = archive(tmp_path, KEY.sign(PROOF))
    without = repacked(path, tmp_path / "without.zip", resum=False, drop=SUMS_SIGNATURE)
    assert not verify_path(without).holds, "the proof is signed, so the archive has to be"
    (tmp_path / "other").mkdir()
    assert not verify_path(archive(tmp_path / "other", KEY.sign(PROOF), OTHER)).holds
    more = repacked(path, tmp_path / "more.zip", resum=False, extra__txt=b"x")
    assert "extra.txt is not in" in (verify_path(more).contradiction or "")
    fewer = repacked(path, tmp_path / "fewer.zip", resum=False, drop="NOTICE")
    assert "NOTICE is missing" in (verify_path(fewer).contradiction or "")


def test_a_report_is_checked_against_a_key(tmp_path: Path) -> None:
    view, path = releasable_view(report()), tmp_path / "report.json"
    path.write_bytes(file(KEY.sign(view)))
    assert verify_path(path, KEY.public).holds
    assert not verify_path(path, OTHER.public).holds
    with pytest.raises(InvalidInput, match="report"):
        verify_path(path)
    forged = {**KEY.sign(view), "contact": "The forger"}
    forged["seal"] = {**forged["seal"], "sha256": compute_seal(forged)}
    path.write_bytes(file(forged))
    assert "changed after it was signed" in (verify_path(path, KEY.public).contradiction or "")
    path.write_bytes(file(view))
    assert "Nobody signed it" in (verify_path(path, KEY.public).contradiction or "")


def test_the_key_belongs_to_the_database(database: Database) -> None:
    assert signing_key(database).public == signing_key(database).public
