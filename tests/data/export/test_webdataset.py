"""A WebDataset of ours is read by the libraries that people read WebDatasets with."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from datalens_service.data import read_upload
from datalens_service.data.export import WRITERS, WrittenImages


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


def test_class_names_lie_in_the_shard(shard: Path, release: WrittenImages) -> None:
    with tarfile.open(shard) as archive:
        classes = archive.extractfile("__classes.json__")
        assert classes is not None
        assert json.load(classes)["class_names"] == list(release.schema.class_names)
