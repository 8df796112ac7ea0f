"""Images of every kind become one size and mode, each by itself."""

import io
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydantic import ValidationError
from pydicom.data import get_testdata_file
from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import UID, JPEG2000Lossless, JPEGLossless, JPEGLosslessSV1, JPEGLSLossless

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.image_sizes import parse_size
from datalens_service.data.intake.preparation.arrays import convert_pixels
from datalens_service.data.intake.preparation.dicom import read_patient
from datalens_service.data.intake.preparation.pictures import prepare_picture
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.sandbox.sandbox import Confinement, decode
from datalens_service.data.intake.untrusted.images import Picture
from datalens_service.data.intake.untrusted.limits import PREPARE_LIMITS, Limits
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.preparation_settings import Colour, Fit, PrepareSettings

from .builders import write_zip
from .dicom_files import dicom, packed_dicom

RAMP = np.arange(64, dtype=np.int16).reshape(8, 8)


def prepare(data: bytes, window: tuple[int, int] | None = None, frame: int = 1, side: int = 8) -> Picture:
    return prepare_picture(data, PrepareSettings(width=side, height=side, window=window, frame=frame), PREPARE_LIMITS)


def bundled(name: str) -> bytes:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    return Path(path).read_bytes()


def test_a_window_is_in_modality_units() -> None:
    data = dicom(RAMP, RescaleSlope="2", RescaleIntercept="-10")
    pixels, changes = prepare(data, window=(0, 100))
    expected = np.rint(255 * np.clip((2.0 * RAMP - 10) / 100, 0, 1))
    np.testing.assert_array_equal(pixels[..., 0], expected)
    assert changes == (NoticeCode.WINDOW_APPLIED,)


def test_the_file_s_own_window_is_taken_where_none_is_named() -> None:
    exact = dicom(RAMP, WindowCenter="30", WindowWidth="20", VOILUTFunction="LINEAR_EXACT")
    np.testing.assert_array_equal(prepare(exact).pixels, prepare(exact, window=(20, 40)).pixels)
    # C.11.2.1.2.1: centre minus a half, width minus one.
    linear = dicom(RAMP, WindowCenter=["30.5", "50"], WindowWidth=["21", "9"])
    np.testing.assert_array_equal(prepare(linear).pixels, prepare(exact).pixels)


def test_more_than_8_bits_without_any_window_are_refused() -> None:
    for data in (dicom(RAMP), dicom(RAMP, WindowCenter="3", WindowWidth="9", VOILUTFunction="SIGMOID")):
        with pytest.raises(InvalidDataset, match="prepare_window"):
            prepare(data)


def test_8_bits_stay_and_monochrome1_is_inverted() -> None:
    grey = RAMP.astype(np.uint8)
    np.testing.assert_array_equal(prepare(dicom(grey)).pixels[..., 0], grey)
    inverted = prepare(dicom(grey, PhotometricInterpretation="MONOCHROME1"))
    np.testing.assert_array_equal(inverted.pixels[..., 0], 255 - grey)


def test_colour_is_read() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picture = prepare_picture(dicom(colours), PrepareSettings(width=8, height=8, colour=Colour.RGB), PREPARE_LIMITS)
    np.testing.assert_array_equal(picture.pixels, colours)


def test_the_first_frame_is_read_unless_another_is_named() -> None:
    frames = np.stack([RAMP.astype(np.uint8), RAMP.astype(np.uint8) + 100])
    data = dicom(frames)
    with pytest.raises(InvalidDataset, match="fewer"):
        prepare(data, frame=3)
    for number in (1, 2):
        pixels, changes = prepare(data, frame=number)
        np.testing.assert_array_equal(pixels[..., 0], frames[number - 1])
        assert changes == (NoticeCode.FRAME_SELECTED,)


def test_files_with_one_frame_have_no_other_that_could_be_named() -> None:
    grey = RAMP.astype(np.uint8)
    target = io.BytesIO()
    Image.fromarray(grey).save(target, "PNG")
    for data in (dicom(grey), target.getvalue()):
        np.testing.assert_array_equal(prepare(data, frame=2).pixels[..., 0], grey)


@pytest.mark.filterwarnings("error:invalid value encountered")
def test_no_window_makes_a_pixel_of_what_is_no_number() -> None:
    values = np.zeros((3, 8, 8, 1), np.float32)
    values[1, 2, 2] = np.nan
    settings = PrepareSettings(width=8, height=8, window=(0, 9))
    with pytest.raises(InvalidDataset, match=r"Image 1 .*NaN"):
        convert_pixels(values, "images", settings, Notices())
    with pytest.raises(InvalidDataset, match="cannot be decoded"):
        prepare(dicom(RAMP, RescaleSlope="nan", RescaleIntercept="0"), window=(0, 9))


def test_a_frame_of_a_tiff_is_read() -> None:
    target = io.BytesIO()
    first, second = (Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200))
    first.save(target, "TIFF", save_all=True, append_images=[second])
    assert prepare(target.getvalue()).pixels[0, 0, 0] == 10
    assert prepare(target.getvalue(), frame=2).pixels[0, 0, 0] == 200


@pytest.mark.parametrize(
    ("chosen", "says"), [(RAMP.astype(np.uint16), "prepare_window"), (np.zeros((64, 64), np.uint8), "1,000 pixels")]
)
def test_what_is_asked_of_an_image_is_asked_of_the_chosen_frame(chosen: np.ndarray, says: str) -> None:
    target = io.BytesIO()
    first = Image.fromarray(np.zeros((8, 8), np.uint8))
    first.save(target, "TIFF", save_all=True, append_images=[Image.fromarray(chosen)])
    with pytest.raises(InvalidDataset, match=says):
        prepare_picture(target.getvalue(), PrepareSettings(width=8, height=8, frame=2), Limits(image_pixels=1000))


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("CT_small.dcm", (-1000, 1000)),
        ("MR_small.dcm", None),
        ("MR_small_RLE.dcm", None),
        ("JPEG2000.dcm", (0, 200)),
        ("SC_rgb_rle.dcm", None),
        ("SC_rgb_jpeg_dcmtk.dcm", None),
    ],
)
def test_files_of_real_scanners_are_read(name: str, window: tuple[int, int] | None) -> None:
    pixels, changes = prepare(bundled(name), window, side=64)
    assert pixels.shape == (64, 64, 3 if name.startswith("SC_rgb") else 1)
    assert pixels.max() - pixels.min() > 100
    assert (NoticeCode.WINDOW_APPLIED in changes) == (not name.startswith("SC"))


@pytest.mark.parametrize("syntax", [JPEGLSLossless, JPEG2000Lossless], ids=["JPEG-LS", "JPEG 2000"])
def test_what_scanners_pack_without_loss_is_read_as_if_it_were_not_packed(syntax: UID) -> None:
    rng = np.random.default_rng(3)
    for pixels in (rng.integers(0, 4096, (64, 96), dtype=np.uint16), rng.integers(0, 256, (64, 96), dtype=np.uint8)):
        packed = packed_dicom(pixels, syntax)
        assert packed != dicom(pixels)
        window = (0, 4095) if pixels.dtype == np.uint16 else None
        np.testing.assert_array_equal(prepare(packed, window, 30).pixels, prepare(dicom(pixels), window, 30).pixels)


def test_a_packed_file_is_decoded_in_the_confined_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    files = {
        f"{name}/{number}.dcm": packed_dicom(rng.integers(0, 256, (64, 64), dtype=np.uint8), syntax)
        for name, syntax in (("ls", JPEGLSLossless), ("j2k", JPEG2000Lossless))
        for number in range(3)
    }
    write_zip(tmp_path / "upload.zip", files)
    choices = ReadingChoices(preparation=PrepareSettings(width=16, height=16), ignore_groups=True)
    (tmp_path / "scratch").mkdir()
    outcome = decode(tmp_path / "upload.zip", tmp_path / "scratch", Confinement(4 * 2**30, 480), choices)
    assert outcome.counts.for_owner().train == 6


@pytest.mark.parametrize(
    ("syntax", "package"),
    [
        (JPEGLSLossless, r"JPEG-LS .* datalens-service\[dicom\]"),
        (JPEGLossless, r"Process 14\).* python-gdcm"),
        (JPEGLosslessSV1, "First-Order Prediction.* python-gdcm"),
    ],
    ids=["JPEG-LS", "lossless JPEG", "lossless JPEG of most devices"],
)
def test_without_the_decoder_the_file_names_what_is_missing_and_how_to_unpack_it(
    monkeypatch: pytest.MonkeyPatch, syntax: UID, package: str
) -> None:
    file = pydicom.dcmread(io.BytesIO(packed_dicom(np.zeros((8, 8), dtype=np.uint8), JPEGLSLossless)))
    # Refused before its pixels are read.
    file.file_meta.TransferSyntaxUID = syntax
    packed = io.BytesIO()
    file.save_as(packed)
    monkeypatch.setattr(type(get_decoder(syntax)), "is_available", False)
    for part in (package, "gdcmconv -w"):
        with pytest.raises(InvalidDataset, match=part):
            prepare(packed.getvalue())


def test_a_damaged_packed_file_is_refused() -> None:
    packed = packed_dicom(np.arange(400, dtype=np.uint16).reshape(20, 20), JPEGLSLossless)
    for length in (len(packed) - 60, len(packed) // 2):
        with pytest.raises(InvalidDataset):
            prepare(packed[:length], (0, 400))


def test_the_patient_is_read_and_nobody_is_refused() -> None:
    assert read_patient(dicom(RAMP)).id == "P-17"
    with pytest.raises(InvalidDataset, match="no patient ID"):
        read_patient(dicom(RAMP, PatientID=""))


def test_damaged_large_and_foreign_files_are_refused() -> None:
    whole = dicom(RAMP)
    for data in (whole[:200], whole[:-40], bytes(128) + b"DICM" + b"\xff" * 60):
        with pytest.raises(InvalidDataset):
            prepare(data, window=(0, 1))
    with pytest.raises(InvalidDataset, match="more than 63 pixels"):
        prepare_picture(whole, PrepareSettings(width=8, height=8), Limits(image_pixels=63))
    with pytest.raises(InvalidDataset, match="neither grey nor 8-bit RGB"):
        prepare(dicom(RAMP, PhotometricInterpretation="PALETTE COLOR"))


@pytest.mark.parametrize(("width", "height"), [(96, 48), (48, 96), (16, 16), (8, 24), (33, 17)])
@pytest.mark.parametrize("taken", [(240, 80), (80, 240), (100, 100)])
def test_a_crop_keeps_proportions_and_takes_the_centre(taken: tuple[int, int], width: int, height: int) -> None:
    """A ramp across the whole image: what is left of it is cut evenly on both ends, and by as much as has to go."""
    wide, high = taken
    scale = max(width / wide, height / high)
    for axis, (side, whole) in enumerate(((height, high), (width, wide))):
        ramp = np.linspace(0, 250, whole)
        image = np.broadcast_to(ramp[:, None] if axis == 0 else ramp, (high, wide)).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(image)).save(file, "PNG")
        settings = PrepareSettings(width=width, height=height, fit=Fit.CROP)
        pixels = prepare_picture(file.getvalue(), settings, PREPARE_LIMITS).pixels
        assert pixels.shape == (height, width, 1)
        line = pixels[..., 0].mean(axis=1 - axis)
        kept = side / scale / whole
        expected = 125 + 250 * kept * (np.arange(side) + 0.5 - side / 2) / side
        # Lanczos bends the ramp at its ends.
        assert np.abs(line - expected)[1:-1].max() < 4


def test_what_a_proof_says_of_a_window_is_read_strictly() -> None:
    settings = PrepareSettings(width=28, height=28, window=(0, 4000))
    assert PrepareSettings.model_validate_json(settings.model_dump_json(), strict=True) == settings
    with pytest.raises(ValidationError):
        PrepareSettings.model_validate_json(settings.model_dump_json().replace("4000", '"4000"'), strict=True)


@pytest.mark.parametrize(("text", "size"), [("64", (64, 64)), (64, (64, 64)), ("96x48", (96, 48)), ("4×256", (4, 256))])
def test_a_size_is_read_in_its_notations(text: str | int, size: tuple[int, int]) -> None:
    assert parse_size(text) == size
    assert parse_size(str(parse_size(text))) == size


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "257", "64x", "x64", "64x3", "64x257", "64 x 48", "64*48", "64X48", "-8", "8.0", "1_0", "٣٢", "1x2x3",
        3, 8.0, True, None,
    ],
)  # fmt: skip
def test_any_other_size_is_refused_with_the_notation(text: object) -> None:
    with pytest.raises(ValueError, match=r"64 \(square\) or 96x48 \(width x height\), 4 to 256 pixels each"):
        parse_size(text)
