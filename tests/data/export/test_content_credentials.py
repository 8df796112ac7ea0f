"""Content Credentials: the library's own reader believes what we sign, and nothing that was changed since."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import c2pa
import numpy as np
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from PIL import Image

from certificates import SignerFiles, issue_signer
from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.content_credentials import (
    ContentCredentials,
    CredentialFiles,
    is_model,
    read_credentials,
)
from datalens_service.data.export.png import encode_png
from datalens_service.data.export.writer import TRAINED_ALGORITHMIC_MEDIA

from ..builders import random_images

PNG = "image/png"
IMAGE = random_images(1, 32, 24, 3)[0]


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> SignerFiles:
    return issue_signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture
def credentials(signer: SignerFiles) -> ContentCredentials:
    return ContentCredentials(CredentialFiles(signer.certificate, signer.key))


def test_the_library_reads_that_a_trained_model_made_a_png(credentials: ContentCredentials) -> None:
    signed = encode_png(IMAGE, credentials)
    reader = c2pa.Reader(PNG, io.BytesIO(signed))
    actions = reader.get_active_manifest()["assertions"][0]["data"]["actions"]
    assert actions == [{"action": "c2pa.created", "digitalSourceType": TRAINED_ALGORITHMIC_MEDIA}]
    assert reader.get_validation_state() == "Valid"


def test_a_png_grows_by_about_3_kilobytes_as_the_page_says(credentials: ContentCredentials) -> None:
    assert 2_500 < len(encode_png(IMAGE, credentials)) - len(encode_png(IMAGE)) < 3_500


def test_signing_changes_no_pixel_and_keeps_the_xmp(credentials: ContentCredentials) -> None:
    with Image.open(io.BytesIO(encode_png(IMAGE, credentials))) as picture:
        assert np.array_equal(np.asarray(picture), IMAGE)
        assert TRAINED_ALGORITHMIC_MEDIA in picture.info["XML:com.adobe.xmp"]


def test_a_manifest_shows_no_name_time_or_picture_beyond_the_certificate(credentials: ContentCredentials) -> None:
    manifest = c2pa.Reader(PNG, io.BytesIO(encode_png(IMAGE, credentials))).get_active_manifest()
    known = {"claim_generator_info", "instance_id", "assertions", "signature_info", "label", "claim_version"}
    assert manifest.keys() <= known
    assert manifest["signature_info"].keys() <= {"alg", "issuer", "common_name", "cert_serial_number"}


def test_an_authority_that_the_reader_names_makes_it_trusted(
    credentials: ContentCredentials, signer: SignerFiles, tmp_path: Path
) -> None:
    signed = encode_png(IMAGE, credentials)
    own = read_credentials(signed, authority=signer.authority.read_text())
    assert own is not None
    assert (own.state, own.signer, own.synthetic) == ("trusted", "Test Clinic, Signer", True)
    other = read_credentials(signed, authority=issue_signer(tmp_path).authority.read_text())
    assert other is not None
    assert other.state == "valid"


@pytest.mark.parametrize("offset", [12, 40, -40])
def test_a_changed_pixel_breaks_it(credentials: ContentCredentials, offset: int) -> None:
    signed = bytearray(encode_png(IMAGE, credentials))
    pixels = signed.index(b"IDAT")
    signed[pixels + offset if offset > 0 else offset] ^= 1
    found = read_credentials(bytes(signed))
    assert found is not None
    assert found.state == "invalid"
    assert any("mismatch" in reason for reason in found.reasons) or offset < 0


def test_the_manifest_of_another_image_is_invalid(credentials: ContentCredentials) -> None:
    first, second = bytearray(encode_png(IMAGE, credentials)), encode_png(255 - IMAGE)
    start = first.index(b"caBX") - 4
    length = int.from_bytes(first[start : start + 4], "big") + 12
    moved = second[:33] + bytes(first[start : start + length]) + second[33:]
    found = read_credentials(moved)
    assert found is not None
    assert found.state == "invalid"


def test_an_image_without_a_manifest_has_none() -> None:
    assert read_credentials(encode_png(IMAGE)) is None


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_model_is_signed_beside_its_file(credentials: ContentCredentials, tmp_path: Path, suffix: str) -> None:
    model = tmp_path / f"model{suffix}"
    model.write_bytes(bytes(range(256)) * 9)
    assert is_model(model.name)
    manifest = credentials.sign_model(model)
    found = read_credentials(model.read_bytes(), manifest=manifest)
    assert found is not None
    assert (found.state, found.synthetic) == ("valid", True)
    changed = read_credentials(b"\1" + model.read_bytes()[1:], manifest=manifest)
    assert changed is not None
    assert changed.state == "invalid"


def test_a_model_says_what_it_is(credentials: ContentCredentials, tmp_path: Path) -> None:
    model = tmp_path / "classifier.onnx"
    model.write_bytes(b"model")
    reader = c2pa.Reader("application/octet-stream", io.BytesIO(b"model"), credentials.sign_model(model))
    said = {one["label"]: one["data"] for one in reader.get_active_manifest()["assertions"]}
    assert said["c2pa.asset-type"] == {"types": [{"type": "c2pa.types.model.onnx"}]}
    assert said["c2pa.actions.v2"]["actions"][0]["digitalSourceType"].endswith("/trainedAlgorithmicData")


@pytest.mark.parametrize("name", ["imagefolder", "parquet", "webdataset"])
def test_every_png_of_every_format_is_signed(
    name: str, release: WrittenImages, credentials: ContentCredentials, tmp_path: Path
) -> None:
    WRITERS[name].write(tmp_path / "out", release._replace(credentials=credentials))
    pictures = _pictures(tmp_path / "out", name)
    assert len(pictures) == len(release.images)
    states = [found.state for picture in pictures if (found := read_credentials(picture)) is not None]
    assert states == ["valid"] * len(pictures)


@pytest.mark.parametrize("name", ["imagefolder", "parquet", "webdataset"])
def test_public_images_are_not_signed_as_made_by_a_model(
    name: str, release: WrittenImages, credentials: ContentCredentials, tmp_path: Path
) -> None:
    public = {**release.card, "public_images": {"verbatim": True}}
    WRITERS[name].write(tmp_path / "out", release._replace(card=public, credentials=credentials))
    assert [read_credentials(picture) for picture in _pictures(tmp_path / "out", name)] == [None] * 7


def _pictures(path: Path, name: str) -> list[bytes]:
    if name == "parquet":
        return [row["bytes"] for row in pq.read_table(path)["image"].to_pylist()]
    if name == "webdataset":
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.name.endswith(".png")]
            return [file.read() for member in members if (file := archive.extractfile(member)) is not None]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(entry) for entry in archive.namelist() if entry.endswith(".png")]


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["P-384", "RSA", "Ed25519"],
)
def test_other_kinds_of_keys_sign(key: ec.EllipticCurvePrivateKey, tmp_path: Path) -> None:
    files = issue_signer(tmp_path, key)
    found = read_credentials(encode_png(IMAGE, ContentCredentials(CredentialFiles(files.certificate, files.key))))
    assert found is not None
    assert found.state == "valid"


def test_a_certificate_that_c2pa_does_not_take_is_refused_at_once(tmp_path: Path) -> None:
    cases = {
        "of a server": issue_signer(tmp_path / "server", use=ExtendedKeyUsageOID.SERVER_AUTH),
        "expired": issue_signer(tmp_path / "expired", days=-1),
    }
    for files in cases.values():
        with pytest.raises(InvalidInput, match="cannot sign"):
            ContentCredentials(CredentialFiles(files.certificate, files.key))


def test_a_key_of_another_certificate_is_refused(signer: SignerFiles, tmp_path: Path) -> None:
    other = issue_signer(tmp_path)
    with pytest.raises(InvalidInput, match="not that of the certificate"):
        ContentCredentials(CredentialFiles(signer.certificate, other.key))


def test_no_error_shows_the_key(signer: SignerFiles) -> None:
    with pytest.raises(InvalidInput) as refused:
        ContentCredentials(CredentialFiles(signer.key, signer.certificate))
    assert "PRIVATE" not in f"{refused.value}{json.dumps(str(refused.value.args))}"


def test_without_a_certificate_nothing_is_signed() -> None:
    assert ContentCredentials.from_settings(Settings()) is None


def test_certificate_and_key_go_together(signer: SignerFiles) -> None:
    with pytest.raises(ValueError, match="go together"):
        Settings(content_credentials_certificate_file=signer.certificate)
