"""What every writer owes, over the registry."""

import json
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.writer import TRAINED_ALGORITHMIC_MEDIA


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
    images, labels, schema, card, _ = release
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
@pytest.mark.parametrize("change", ["pixel", "label", "card"])
def test_different_input_gives_different_bytes(tmp_path: Path, release: WrittenImages, name: str, change: str) -> None:
    images, labels, schema, card, _ = release
    WRITERS[name].write(tmp_path / "a", WrittenImages(images, labels, schema, card))
    changed: dict[str, Any] = {"pixel": images.copy(), "label": labels.copy(), "card": dict(card)}
    changed["pixel"][6, 5, 4, -1] ^= change == "pixel"
    changed["label"][6] = 0 if change == "label" else labels[6]
    changed["card"]["epsilon"] = 2.0 if change == "card" else 1.0
    WRITERS[name].write(tmp_path / "b", WrittenImages(changed["pixel"], changed["label"], schema, changed["card"]))
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", WRITERS)
def test_a_card_with_numbers_json_does_not_know_is_refused(tmp_path: Path, release: WrittenImages, name: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        WRITERS[name].write(tmp_path / "a", release._replace(card={"epsilon": float("nan")}))
