"""Images of many sizes and kinds go in as they are, where their owner asks for one size."""

import numpy as np
from api_builders import CONFIRMED, browser, npz_of, send_images, zipped
from PIL import Image
from starlette.testclient import TestClient

from datalens_service.data.notices import NoticeCode
from tests.data.builders import encoded, grey
from tests.data.dicom_files import dicom


def mixed(records: int = 12) -> bytes:
    """Class folders with patients: photographs of several sizes and modes, a TIFF and a DICOM file."""
    rng, files = np.random.default_rng(3), {}
    for number in range(records):
        pixels = rng.integers(0, 256, (20 + number, 30, 3), dtype=np.uint8)
        mode, kind, suffix = [("RGB", "JPEG", "jpg"), ("RGBA", "PNG", "png"), ("CMYK", "TIFF", "tif")][number % 3]
        image = encoded(Image.fromarray(pixels).convert(mode), kind)
        files[f"{'ab'[number % 2]}/p{number // 2}/{number}.{suffix}"] = image
    scan = rng.integers(0, 4096, (64, 48), dtype=np.int16)
    return zipped({**files, "a/p99/scan.dcm": dicom(scan, WindowCenter="2048", WindowWidth="4096")})


def test_mixed_images_become_one_size_and_the_answer_says_what_was_changed(client: TestClient) -> None:
    reply = send_images(
        client, mixed(), prepare_size="24x16", prepare_colour="rgb", records_per_unit="2", unit="patient"
    )
    assert reply.status_code == 201, reply.text
    schema = reply.json()["schema"]
    assert (schema["height"], schema["width"], schema["channels"], schema["num_units"]) == (16, 24, 3, 7)
    counts = {NoticeCode(notice["code"]): notice["count"] for notice in reply.json()["notices"]}
    assert counts[NoticeCode.RESIZED] == 13
    assert counts[NoticeCode.WINDOW_APPLIED] == 1
    assert counts[NoticeCode.TRANSPARENCY_REMOVED] == 4
    assert schema["preparation"] == {
        "width": 24,
        "height": 16,
        "fit": "resize",
        "colour": "rgb",
        "window": None,
        "frame": 1,
    }
    page = browser(client).get(f"/datasets/{reply.json()['id']}").text
    assert "resized as a whole to 24 by 16 pixels, in 8-bit RGB" in page


def scans(*patients: str) -> bytes:
    """DICOM files in class folders, each of a patient; other patients have other images."""
    rng, files = np.random.default_rng(list("".join(patients).encode())), {}
    for number, patient in enumerate(patients):
        scan = rng.integers(0, 256, (8, 8), dtype=np.uint8)
        files[f"{'ab'[number % 2]}/{number}.dcm"] = dicom(scan, PatientID=patient)
    return zipped(files)


def test_the_patient_id_of_a_dicom_file_becomes_its_group(client: TestClient) -> None:
    form = {**CONFIRMED, "epsilon": "10", "prepare_size": "8"}
    upload = {"file": scans("ann", "bob", "ann", "cid")}
    grouped = client.post("/v1/datasets", files=upload, data=form | {"records_per_unit": "2", "unit": "patient"})
    assert grouped.json()["schema"]["num_units"] == 3
    undeclared = client.post("/v1/datasets", files={"file": scans("dan", "eve", "dan", "fay")}, data=form)
    assert "one patient has up to 2 training images" in undeclared.json()["detail"]
    single = client.post("/v1/datasets", files={"file": scans("dan", "eve", "flo", "gil")}, data=form)
    assert single.json()["schema"]["num_units"] == 4
    nameless = client.post("/v1/datasets", files={"file": scans("gus", "")}, data=form | {"records_per_unit": "2"})
    assert [file["name"] for file in nameless.json()["bad_files"]] == ["b/1.dcm"]


def test_a_refusal_names_the_setting(client: TestClient) -> None:
    reply = send_images(client, mixed(), records_per_unit="2")
    assert reply.status_code == 422
    assert "prepare_size" in reply.json()["detail"]
    assert {file["name"] for file in reply.json()["bad_files"]} >= {"a/p1/2.tif", "a/p99/scan.dcm"}
    reply = send_images(client, zipped({f"{side}/1.png": grey(size=(side, side)) for side in (8, 9)}))
    assert reply.status_code == 422
    assert "prepare_size" in reply.json()["detail"]


def test_settings_that_make_no_sense_are_refused(client: TestClient) -> None:
    for form in [{"prepare_fit": "crop"}, {"prepare_size": "96x300"}, {"prepare_size": "16", "prepare_window": "5 5"}]:
        assert send_images(client, mixed(), **form).status_code == 422, form


def test_arrays_are_prepared_too(client: TestClient) -> None:
    arrays = npz_of(images=np.zeros((20, 8, 8), np.uint8), labels=np.arange(20) % 2)
    reply = send_images(client, arrays, prepare_size="16")
    assert (reply.json()["schema"]["width"], reply.json()["schema"]["height"]) == (16, 16)
