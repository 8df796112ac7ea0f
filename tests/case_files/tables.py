"""Cases of Parquet and WebDataset: their columns, shards, keys and labels."""

import gzip
import json
from typing import Any, Final

import pyarrow as pa

from tests.data.builders import zipped
from tests.data.uploads import table

from .pictures import png, put_into, tar_of
from .registry import case_file


def pngs(start: int = 0) -> list[bytes]:
    return [png(start + number) for number in range(6)]


TURNS: Final = [0, 1] * 3
NAMED: Final = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}

COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "pq_int.parquet": {"label": TURNS},
    "pq_words.parquet": {"label": ["a", "b"] * 3},
    "pq_boollabel.parquet": {"label": [False, True] * 3},
    "pq_floatlabel.parquet": {"label": [0.0, 1.0] * 3},
    "pq_group.parquet": {"label": TURNS, "group": ["g0", "g0", "g1", "g1", "g2", "g2"]},
}
"""Columns beside six images."""

for _name, _columns in COLUMNS.items():
    case_file(_name)(lambda columns=_columns: table(None, **{"image": pngs(), **columns}))


@case_file("pq_paths.parquet")
def paths_in_place_of_bytes() -> bytes:
    rows = [{"bytes": None, "path": f"cat/{number}.png"} for number in range(6)]
    return table(None, image=pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()})), label=TURNS)


@case_file("pq_classlabel.parquet")
def features_of_hugging_face() -> bytes:
    return table(NAMED, image=[{"bytes": content, "path": None} for content in pngs()], label=TURNS)


@case_file("pq_cut.parquet")
def a_table_cut_off_in_its_footer() -> bytes:
    return table(None, image=pngs(), label=TURNS)[:-200]


@case_file("pq_shards.zip")
def shards_of_two_splits() -> bytes:
    names = ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001")
    return zipped(
        {f"{name}.parquet": table(None, image=pngs(6 * number), label=TURNS) for number, name in enumerate(names)}
    )


@case_file("pq_shards_diffschema.zip")
def shards_with_labels_of_two_types() -> bytes:
    return zipped(
        {
            "train-00000-of-00002.parquet": table(None, image=pngs(), label=TURNS),
            "train-00001-of-00002.parquet": table(None, image=pngs(6), label=["a", "b"] * 3),
        }
    )


def samples(image: str = ".png", label: str = ".cls", prefix: str = "", start: int = 0) -> dict[str, bytes]:
    """Six samples of WebDataset, cat and dog in turn."""
    files = {}
    for number, content in enumerate(pngs(start)):
        key = f"{prefix}{number:04}"
        files |= {f"{key}{image}": content, f"{key}{label}": (b"cat", b"dog")[number % 2]}
    return files


@case_file("wds_cls.tar")
def labels_in_cls() -> bytes:
    return tar_of(samples())


@case_file("b_wds_upper.tar")
def endings_in_capitals() -> bytes:
    return tar_of(samples(".PNG", ".CLS"))


@case_file("b_wds_dots.tar")
def dots_in_keys() -> bytes:
    return tar_of(samples(prefix="scan.v1."))


@case_file("wds_split.tar")
def two_splits() -> bytes:
    return tar_of({**put_into("train", samples()), **put_into("test", samples(start=6))})


@case_file("wds_missing.tar")
def a_sample_without_its_label() -> bytes:
    return tar_of({name: content for name, content in samples().items() if name != "0003.cls"})


@case_file("wds_json.tar.gz")
def labels_in_json() -> bytes:
    files = {}
    for number, content in enumerate(pngs()):
        files |= {f"{number:04}.png": content, f"{number:04}.json": json.dumps({"label": number % 2}).encode()}
    return gzip.compress(tar_of(files), mtime=0)
