import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from datalens_service.data.export import WrittenImages, parquet


def test_columns_hold_png_bytes_and_labels(tmp_path: Path, release: WrittenImages) -> None:
    parquet.write(tmp_path / "a", release)
    table = pq.read_table(tmp_path / "a")
    assert table.schema.field("image").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    assert table.column("label").to_pylist() == release.labels.tolist()
    for row, image in zip(table.column("image").to_pylist(), release.images, strict=True):
        decoded = np.asarray(Image.open(io.BytesIO(row["bytes"]), formats=["PNG"]))
        np.testing.assert_array_equal(decoded.reshape(image.shape), image)
    assert table.column("image")[6]["path"].as_py() == "00000006.png"


def test_features_are_declared_as_hugging_face_datasets_reads_them(tmp_path: Path, release: WrittenImages) -> None:
    """With exactly this text datasets 5.2.0 yields decoded images and named labels."""
    parquet.write(tmp_path / "a", release)
    declared = json.loads(pq.read_schema(tmp_path / "a").metadata[b"huggingface"])
    assert declared["info"]["features"] == {
        "image": {"_type": "Image"},
        "label": {"names": list(release.schema.class_names), "_type": "ClassLabel"},
    }


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
