"""The detector finds every mark of an image, alone and together, and says what it did not find without a verdict."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from certificates import SignerFiles, issue_signer
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.content_credentials import ContentCredentials, CredentialFiles
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES, hash_pixels, list_hashes, parse_hashes
from datalens_service.data.export.png import encode_png, encode_private_png, encode_public_png
from datalens_service.data.export.release_archive import write_bundle
from datalens_service.proof.marks import Marks, WhereToLook, can_be_marked, find_marks
from example_proof import EXAMPLE_PROOF
from tests.data.builders import random_images
from tests.proof.releases import KEY

GREY, COLOUR = random_images(1, 20, 28, 1)[0], random_images(1, 20, 28, 3)[0]
NOWHERE = WhereToLook()


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> SignerFiles:
    return issue_signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture
def credentials(signer: SignerFiles) -> ContentCredentials:
    return ContentCredentials(CredentialFiles(signer.certificate, signer.key))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release archive with the two images."""
    images = np.stack([COLOUR, 255 - COLOUR])
    schema = Schema(channels=3, height=20, width=28, class_names=("a", "b"), num_units=100)
    WRITERS["npz"].write(tmp_path / "images", WrittenImages(images, np.arange(2), schema, EXAMPLE_PROOF["card"]))
    further = {"privacy.json": json.dumps(EXAMPLE_PROOF).encode(), PIXEL_HASHES: list_hashes(images).encode()}
    path = tmp_path / "release.zip"
    drawn, card = DrawnImages(2), EXAMPLE_PROOF["card"]
    write_bundle(path, tmp_path / "images", "npz", card, drawn=drawn, name="t", spdx="other", further=further, key=KEY)
    return path


def look(content: bytes, folder: Path, where: WhereToLook = NOWHERE) -> Marks:
    path = folder / "image"
    path.write_bytes(content)
    assert can_be_marked(path)
    return find_marks(path, where)


def statuses(marks: Marks) -> dict[str, str]:
    return {line.mark: line.status for line in marks.lines}


def saved_anew(png: bytes, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.save(buffer, format=form, **options)
    return buffer.getvalue()


def test_the_metadata_of_our_images_are_found_and_nothing_else_is_claimed(tmp_path: Path) -> None:
    marks = look(encode_png(COLOUR), tmp_path)
    assert marks.marked
    assert statuses(marks) == {
        "metadata": "found", "content credentials": "not found", "release": "not checked", "service": "not checked",
    }  # fmt: skip


def test_a_signed_image_is_found_and_its_signer_is_named_without_being_vouched_for(
    tmp_path: Path, credentials: ContentCredentials, signer: SignerFiles
) -> None:
    signed = encode_png(COLOUR, credentials)
    line = look(signed, tmp_path).lines[1]
    assert line.status == "found"
    assert "Test Clinic, Signer, for whom nobody vouches" in line.finding
    trusted = look(signed, tmp_path, WhereToLook(authority=signer.authority.read_text())).lines[1]
    assert "for whom your authority vouches" in trusted.finding


def test_a_changed_pixel_breaks_the_whole(tmp_path: Path, credentials: ContentCredentials) -> None:
    signed = encode_png(COLOUR, credentials)
    changed = COLOUR.copy()
    changed[3, 4] ^= 1
    other = encode_png(changed)
    # The pixels of one image with the manifest of another, in a file that every viewer opens.
    start = signed.index(b"caBX") - 4
    length = int.from_bytes(signed[start : start + 4], "big") + 12
    marks = look(other[:33] + signed[start : start + length] + other[33:], tmp_path)
    assert statuses(marks)["content credentials"] == "broken"
    assert marks.broken
    assert not marks.marked


@pytest.mark.parametrize(
    "image",
    [encode_public_png(COLOUR), encode_private_png(COLOUR), saved_anew(encode_png(COLOUR), "PNG")],
    ids=["public", "private", "saved anew"],
)
def test_other_images_are_not_said_to_be_synthetic(image: bytes, tmp_path: Path) -> None:
    marks = look(image, tmp_path)
    assert not marks.marked
    assert statuses(marks)["metadata"] == "not found"


def test_private_records_are_named_as_such(tmp_path: Path) -> None:
    assert "For their owner only" in look(encode_private_png(COLOUR), tmp_path).lines[0].finding


def test_xmp_survives_in_jpeg_and_webp_where_a_program_copies_it(tmp_path: Path) -> None:
    png = encode_png(COLOUR)
    with Image.open(io.BytesIO(png)) as picture:
        xmp = picture.info["XML:com.adobe.xmp"].encode()
    for form in ("JPEG", "WEBP"):
        assert look(saved_anew(png, form, xmp=xmp), tmp_path).marked, form


@pytest.mark.parametrize(("form", "options"), [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_an_archive_recognises_an_image_that_lost_its_marks(
    form: str, options: dict[str, object], tmp_path: Path, release: Path
) -> None:
    bare = saved_anew(encode_png(COLOUR), form, **options)
    marks = look(bare, tmp_path, WhereToLook(release=release))
    assert statuses(marks) == {
        "metadata": "not found", "content credentials": "not found", "release": "found", "service": "not checked",
    }  # fmt: skip
    assert marks.marked


def test_an_archive_does_not_know_another_image_and_a_lossy_copy(tmp_path: Path, release: Path) -> None:
    for image in (saved_anew(encode_png(COLOUR[::-1]), "PNG"), saved_anew(encode_png(COLOUR), "JPEG", quality=30)):
        marks = look(image, tmp_path, WhereToLook(release=release))
        assert statuses(marks)["release"] == "not found"
        assert not marks.marked


def test_a_release_without_hashes_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    marks = look(encode_png(COLOUR), tmp_path, WhereToLook(release=tmp_path / "folder"))
    assert statuses(marks)["release"] == "not checked"


def test_a_service_is_asked_by_the_hash_alone(tmp_path: Path) -> None:
    asked = list[str]()

    def answer(pixel_hash: str) -> str:
        asked.append(pixel_hash)
        return "Made by job job_1."

    assert look(encode_png(COLOUR), tmp_path, WhereToLook(service=answer)).lines[3].finding == "Made by job job_1."
    assert asked == [hash_pixels(COLOUR)]

    unknown = look(encode_png(COLOUR), tmp_path, WhereToLook(service=lambda _: None))
    assert unknown.lines[3].status == "not found"


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
def test_the_hash_of_an_image_does_not_depend_on_how_its_pixels_are_stored(mode: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(GREY[..., 0]).convert(mode).save(buffer, format="PNG")
    known = hash_pixels(GREY)
    marks = look(buffer.getvalue(), tmp_path, WhereToLook(service=lambda given: str(given == known)))
    assert marks.lines[3].finding == "True"


def test_hashes_differ_by_shape_as_well_as_by_pixels() -> None:
    images: list[Images] = [GREY, GREY.reshape(28, 20, 1), GREY[::-1], np.repeat(GREY, 3, axis=2)]
    first, turned, mirrored, coloured = map(hash_pixels, images)
    assert len({first, turned, mirrored}) == 3
    assert coloured == first
    assert parse_hashes(list_hashes(images)) == {first, turned, mirrored}


def test_a_model_with_its_manifest_beside_it(tmp_path: Path, credentials: ContentCredentials) -> None:
    model = tmp_path / "generator.safetensors"
    model.write_bytes(b"weights")
    assert not can_be_marked(model)
    model.with_name("generator.safetensors.c2pa").write_bytes(credentials.sign_model(model))
    assert can_be_marked(model)
    assert find_marks(model, NOWHERE).marked
    model.write_bytes(b"weightz")
    assert find_marks(model, NOWHERE).broken


@pytest.mark.parametrize("length", [9, 60, 200])
def test_a_damaged_image_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(encode_png(COLOUR)[:length])
    with pytest.raises(InvalidInput, match="cannot be decoded"):
        find_marks(path, NOWHERE)


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "image"
    Image.new("L", (20_000, 20_000)).save(path, format="PNG")
    with pytest.raises(InvalidInput, match=r"pixels|decoded"):
        find_marks(path, NOWHERE)
