"""Bundles: complete, checked by their own sums, valid Croissant, loaded by those who load data sets."""

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.parsing import decimal_text
from datalens_service.base.signatures import SigningKey, signer
from datalens_service.data import read_upload
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.licence import LICENCES, licence_text
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.release_archive import write_bundle
from example_proof import EXAMPLE_PROOF

from ..builders import random_images

KEY = SigningKey(b"of this house")
CARD: dict[str, Any] = EXAMPLE_PROOF["card"]
PAGES = {"README.md", "datasheet.md", "croissant.json", "classes.json", "provenance.json", "LICENSE", "NOTICE"}
IMAGES = random_images(30, 28, 28, 1)
LABELS = np.arange(30, dtype=np.int64) % 10


@pytest.fixture(params=WRITERS)
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An unpacked bundle; its folder is named by the format."""
    return unpacked(tmp_path, request.param)


def unpacked(folder: Path, kind: str, title: str = "Digits: a [test]") -> Path:
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    WRITERS[kind].write(folder / "images", WrittenImages(IMAGES, LABELS, schema, CARD))
    further = {"privacy.json": json.dumps(EXAMPLE_PROOF).encode()}
    write_bundle(
        folder / "zip",
        folder / "images",
        kind,
        CARD,
        drawn=DrawnImages(30),
        name=title,
        spdx="CC-BY-4.0",
        further=further,
        key=KEY,
    )
    with zipfile.ZipFile(folder / "zip") as archive:
        archive.extractall(folder / kind)
    return folder / kind


def test_everything_is_there_and_its_sum_is_right(bundle: Path) -> None:
    files = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    assert files > PAGES | {"SHA256SUMS", "privacy.json"}
    sums = dict(reversed(line.split("  ", 1)) for line in (bundle / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == files - {"SHA256SUMS", "SHA256SUMS.sig.json"}
    assert signer((bundle / "SHA256SUMS.sig.json").read_bytes()) == KEY.public
    assert all(hashlib.sha256((bundle / name).read_bytes()).hexdigest() == value for name, value in sums.items())
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=bundle, capture_output=True)
    assert checked.returncode == 0


def test_croissant_is_valid(bundle: Path) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(bundle / "croissant.json")
    assert dataset.metadata.ctx.issues.errors == set()
    assert dataset.metadata.ctx.issues.warnings == set()
    assert dataset.metadata.ctx.is_v1_1()
    names = [record["classes/name"] for record in dataset.records("classes")]
    assert names == list("0123456789")


def test_croissant_says_where_it_comes_from(bundle: Path) -> None:
    content = json.loads((bundle / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert content["prov:wasGeneratedBy"]["prov:wasAssociatedWith"]["version"] == CARD["product"]["version"]
    assert content["license"] == LICENCES["CC-BY-4.0"].url
    assert content["digitalSourceType"].endswith("trainedAlgorithmicMedia")
    assert f"ε = {decimal_text(CARD['privacy']['epsilon'])} " in content["rai:personalSensitiveInformation"]


def test_croissant_reads_the_images_of_parquet(tmp_path: Path) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(unpacked(tmp_path, "parquet") / "croissant.json")
    records = list(dataset.records("records"))
    assert [record["records/label"] for record in records] == LABELS.tolist()
    np.testing.assert_array_equal(np.asarray(records[7]["records/image"]), IMAGES[7, ..., 0])


@pytest.mark.parametrize("kind", ["parquet", "imagefolder"])
def test_hugging_face_loads_the_folder(tmp_path: Path, kind: str) -> None:
    import datasets

    folder = unpacked(tmp_path, kind)
    options = {"cache_dir": str(tmp_path / "cache"), "split": "train"}
    loaded = datasets.load_dataset(str(folder), **options)
    assert isinstance(loaded.features["image"], datasets.Image)
    assert isinstance(loaded.features["label"], datasets.ClassLabel)
    assert loaded.features["label"].names == list("0123456789")
    rows = sorted((row["label"], np.asarray(row["image"]).tobytes()) for row in loaded)
    assert rows == sorted((int(label), image.tobytes()) for label, image in zip(LABELS, IMAGES, strict=True))
    if kind == "parquet":
        file = str(folder / WRITERS[kind].archive_place.name)
        alone = datasets.load_dataset("parquet", data_files=file, **options)
        assert alone.features == loaded.features


@pytest.mark.parametrize("kind", WRITERS)
def test_our_own_readers_read_what_we_write(tmp_path: Path, kind: str) -> None:
    folder = unpacked(tmp_path, kind)
    path = tmp_path / "images" if kind == "imagefolder" else folder / WRITERS[kind].archive_place.name
    _, train, _ = read_upload(path)
    order = np.argsort(LABELS, kind="stable") if kind == "imagefolder" else slice(None)
    np.testing.assert_array_equal(train.images, IMAGES[order])
    np.testing.assert_array_equal(train.labels, LABELS[order])


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        unpacked(tmp_path / name, "npz")
    assert (tmp_path / "a" / "zip").read_bytes() == (tmp_path / "b" / "zip").read_bytes()


def test_a_name_cannot_break_out(tmp_path: Path) -> None:
    title = 'x"\n---\n# <script>alert(1)</script> [a](b)'
    text = (unpacked(tmp_path, "npz", title) / "README.md").read_text()
    assert text.count("\n---\n") == 1
    assert "<script>" not in text.partition("\n---\n")[2]


def test_nobody_chooses_a_licence_for_the_owner() -> None:
    assert "reserved all rights" in licence_text("other")
    assert all(licence.url in licence_text(spdx) for spdx, licence in LICENCES.items() if spdx != "other")
