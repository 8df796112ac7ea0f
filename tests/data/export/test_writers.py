"""What every writer owes, over the registry."""

import io
import json
import tarfile
import time
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from datalens_service.data import ReadingChoices, read_upload
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages, image_folder, npz, parquet
from datalens_service.data.export.image_folder import class_folders
from datalens_service.data.export.writer import TRAINED_ALGORITHMIC_MEDIA

from ..builders import random_images


def npz_statement(path: Path) -> str:
    with np.load(path, allow_pickle=False) as arrays:
        return str(arrays["provenance"])


def parquet_statement(path: Path) -> str:
    return pq.read_schema(path).metadata[b"provenance"].decode()


def imagefolder_statement(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("card.json").decode()


def webdataset_statement(path: Path) -> str:
    with tarfile.open(path) as archive:
        card = archive.extractfile("__card.json__")
        assert card is not None
        return card.read().decode()


STATEMENTS = {
    "npz": npz_statement,
    "parquet": parquet_statement,
    "imagefolder": imagefolder_statement,
    "webdataset": webdataset_statement,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_says_it_is_synthetic_and_carries_the_card(
    tmp_path: Path, release: WrittenImages, name: str
) -> None:
    lying = {**release.card, "synthetic": False}
    WRITERS[name].write(tmp_path / "a", release._replace(card=lying))
    statement = json.loads(STATEMENTS[name](tmp_path / "a"))
    assert statement == {
        "epsilon": 1.0,
        "owner": "Zoë",
        "synthetic": True,
        "digital_source_type": TRAINED_ALGORITHMIC_MEDIA,
    }


@pytest.mark.parametrize("name", WRITERS)
def test_equal_input_gives_equal_bytes_at_any_time(
    tmp_path: Path, release: WrittenImages, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels, schema, card, *_ = release
    WRITERS[name].write(tmp_path / "a", WrittenImages(images, labels, schema, card))
    later = time.time() + 10_000_000
    localtime = time.localtime
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "localtime", lambda seconds=later: localtime(seconds))
    WRITERS[name].write(
        tmp_path / "b",
        WrittenImages(images.copy(order="F"), labels.copy(), schema, dict(reversed(card.items()))),
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", WRITERS)
def test_a_card_with_numbers_json_does_not_know_is_refused(tmp_path: Path, release: WrittenImages, name: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        WRITERS[name].write(tmp_path / "a", release._replace(card={"epsilon": float("nan")}))


def test_keys_shapes_and_types_are_those_of_medmnist(tmp_path: Path, release: WrittenImages) -> None:
    npz.write(tmp_path / "a", release)
    with np.load(tmp_path / "a", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["class_names", "provenance", "train_images", "train_labels"]
        expected = release.images[..., 0] if release.schema.channels == 1 else release.images
        np.testing.assert_array_equal(arrays["train_images"], expected)
        np.testing.assert_array_equal(arrays["train_labels"], release.labels)
        assert arrays["train_labels"].dtype == np.int64
        assert arrays["class_names"].tolist() == list(release.schema.class_names)


def test_every_row_group_is_written_in_order(tmp_path: Path, release: WrittenImages) -> None:
    images = np.arange(2500, dtype=np.uint32).view(np.uint8).reshape(2500, 1, 1, 4).repeat(6, axis=1)[..., :1]
    images = images.repeat(5, axis=2).repeat(release.schema.channels, axis=3)
    labels = np.arange(2500, dtype=np.int64) % 3
    parquet.write(tmp_path / "a", WrittenImages(images, labels, release.schema, {}))
    table = pq.read_table(tmp_path / "a")
    assert pq.ParquetFile(tmp_path / "a").num_row_groups == 3
    assert table.column("label").to_pylist() == labels.tolist()
    assert [row["path"] for row in table.column("image").to_pylist()] == [f"{i:08d}.png" for i in range(2500)]
    last = Image.open(io.BytesIO(table.column("image")[2499]["bytes"].as_py()))
    assert np.asarray(last).reshape(6, 5, -1)[0, 0, 0] == 2499 % 256


@pytest.fixture
def shard(tmp_path: Path, release: WrittenImages) -> Path:
    path = tmp_path / "train-00000.tar"
    WRITERS["webdataset"].write(path, release)
    return path


def test_webdataset_yields_every_image_with_its_label(shard: Path, release: WrittenImages) -> None:
    import webdataset

    records = list(webdataset.WebDataset(str(shard), shardshuffle=False).decode("pil").to_tuple("png", "cls"))
    assert [label for _, label in records] == release.labels.tolist()
    images = np.stack([np.asarray(image) for image, _ in records])
    # The library decodes grey as three equal channels.
    np.testing.assert_array_equal(images, np.broadcast_to(release.images, images.shape))


def test_hugging_face_reads_it_by_the_name_of_the_format(tmp_path: Path, shard: Path, release: WrittenImages) -> None:
    import datasets

    options = {"cache_dir": str(tmp_path / "cache"), "split": "train"}
    loaded = datasets.load_dataset("webdataset", data_files=str(shard), **options)
    assert isinstance(loaded.features["png"], datasets.Image)
    assert loaded["cls"][:] == release.labels.tolist()
    np.testing.assert_array_equal(np.asarray(loaded[3]["png"]).ravel(), release.images[3].ravel())


def test_class_names_come_back_also_from_files_of_earlier_versions(
    tmp_path: Path, shard: Path, release: WrittenImages
) -> None:
    earlier = tmp_path / "earlier.tar"
    with tarfile.open(shard) as new, tarfile.open(earlier, "w") as old:
        for member in new:
            content = new.extractfile(member)
            assert content is not None
            member.name = member.name.strip("_")
            old.addfile(member, io.BytesIO(content.read()))
    with tarfile.open(earlier) as old:
        assert {"card.json", "classes.json"} < set(old.getnames())
    for path in (shard, earlier):
        schema, train, _ = read_upload(path)
        assert schema.class_names == release.schema.class_names
        np.testing.assert_array_equal(train.labels, release.labels)


@pytest.mark.parametrize("name", ["npz", "parquet", "webdataset"])
def test_as_many_and_as_long_names_of_classes_as_there_may_be_come_back(tmp_path: Path, name: str) -> None:
    names = tuple(f"{'é' * 96}{number:04d}" for number in range(1000))
    schema = Schema(channels=1, height=6, width=5, class_names=names, num_units=2)
    labels = np.array([0, 999], dtype=np.int64)
    WRITERS[name].write(tmp_path / "a", WrittenImages(random_images(2, 6, 5, 1), labels, schema, {}))
    # Few images of many classes might be persons.
    upload = read_upload(tmp_path / "a", ReadingChoices(allow_identifying_classes=True))
    assert (upload.schema.class_names, upload.train.labels.tolist()) == (names, [0, 999])


def test_layout(tmp_path: Path, release: WrittenImages) -> None:
    image_folder.write(tmp_path / "a", release)
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert archive.namelist() == [
            "card.json",
            "classes.json",
            "2/00000000.png",
            "0_T-shirt_top/00000001.png",
            "1_Übergang/00000002.png",
            "0_T-shirt_top/00000003.png",
            "2/00000004.png",
            "2/00000005.png",
            "1_Übergang/00000006.png",
        ]
        classes = json.loads(archive.read("classes.json"))
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    assert classes == {"class_names": list(release.schema.class_names), "folders": ["0_T-shirt_top", "1_Übergang", "2"]}


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (tuple("0123456789"), tuple("0123456789")),
        (("ant", "bee"), ("ant", "bee")),
        (("bee", "ant"), ("0_bee", "1_ant")),
        (("A", "a"), ("0_A", "1_a")),
        (("a b", "a/b"), ("0_a_b", "1_a_b")),
        ((".hidden", "__MACOSX", "..", "1.png"), ("0_hidden", "1_MACOSX", "2", "3_1_png")),
        (("\ufb01sh",), ("0_fish",)),
        (("x" * 100,), ("0_" + "x" * 64,)),
    ],
)
def test_class_folders(names: tuple[str, ...], folders: tuple[str, ...]) -> None:
    assert class_folders(names) == folders


@pytest.mark.parametrize("count", [1, 2, 10, 11, 100, 1000])
def test_sorted_folders_number_the_classes(count: int) -> None:
    folders = class_folders(tuple(str(i) for i in range(count)))
    assert sorted(folders) == list(folders)
    assert len({folder.casefold() for folder in folders}) == count
    assert all(len(PurePosixPath(folder).parts) == 1 for folder in folders)
