"""`python -m benchmarks.data`: public sets by torchvision, from a server and from folders as it keeps them."""

import gzip
import hashlib
import pickle
import struct
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from benchmarks import data, environment
from benchmarks.environment import dataset
from datalens_service.data import read_upload

GREY = {"train": (6, 28, 28), "t10k": (4, 28, 28)}
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for public sets."""
    folder = tmp_path / "data"
    for module in (environment, data):
        monkeypatch.setattr(module, "DATA", folder)
    return folder


def idx(values: np.ndarray) -> bytes:
    """As Yann LeCun wrote them: unsigned bytes, how many dimensions, and their lengths."""
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def grey_files() -> dict[str, bytes]:
    files = {}
    for split, shape in GREY.items():
        files[f"{split}-images-idx3-ubyte"] = idx(RANDOM.integers(256, size=shape, dtype=np.uint8))
        files[f"{split}-labels-idx1-ubyte"] = idx(np.arange(shape[0], dtype=np.uint8) % 2)
    return files


def colour_files() -> dict[str, bytes]:
    """Two images per batch: all red bytes, then all green, then all blue."""
    batches = {
        name: {"data": RANDOM.integers(256, size=(2, 3072), dtype=np.uint8), "labels": [number % 2, 1 - number % 2]}
        for number, name in enumerate(BATCHES)
    }
    return {
        name: pickle.dumps(batch)
        for name, batch in (batches | {"batches.meta": {"label_names": ["cat", "dog"]}}).items()
    }


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def known_colours(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files, for which torchvision has checksums."""
    files = colour_files()
    sums = [[name, md5(files[name])] for name in BATCHES]
    monkeypatch.setattr(datasets.CIFAR10, "train_list", sums[:-1])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", sums[-1:])
    monkeypatch.setattr(datasets.CIFAR10, "meta", datasets.CIFAR10.meta | {"md5": md5(files["batches.meta"])})
    return files


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A server from which torchvision downloads MNIST; small files, for which it has checksums."""
    files = {f"{name}.gz": gzip.compress(content) for name, content in grey_files().items()}
    write(tmp_path / "mirror", files)
    monkeypatch.setattr(datasets.MNIST, "resources", [(name, md5(content)) for name, content in files.items()])
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path / "mirror")
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        yield files
        server.shutdown()


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_grey_images_that_are_there_are_taken(name: str, folder: str, tmp_path: Path, place: Path) -> None:
    files = grey_files()
    write(tmp_path / folder / "raw", files)
    assert data.fetch(name, tmp_path) == place / f"{name}.npz"
    schema, train, test = read_upload(place / f"{name}.npz")
    assert (schema.channels, schema.height, schema.width, schema.class_names) == (1, 28, 28, ("0", "1"))
    assert train.images.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert test is not None
    assert test.images.tobytes() == files["t10k-images-idx3-ubyte"][16:]
    assert dataset(name).schema == schema
    assert [path.name for path in place.iterdir()] == [f"{name}.npz"]


def test_colours_and_names_of_classes_are_kept(tmp_path: Path, place: Path, known_colours: dict[str, bytes]) -> None:
    write(tmp_path / "cifar-10-batches-py", known_colours)
    schema, train, test = read_upload(data.fetch("cifar10", tmp_path))
    assert (schema.channels, schema.height, schema.width, schema.class_names) == (3, 32, 32, ("cat", "dog"))
    assert test is not None
    assert (len(train.labels), len(test.labels)) == (10, 2)
    rows = pickle.loads(known_colours["test_batch"])["data"]  # noqa: S301 (made above)
    np.testing.assert_array_equal(test.images, rows.reshape(2, 3, 32, 32).transpose(0, 2, 3, 1))


def test_what_is_missing_is_downloaded(
    mirror: dict[str, bytes], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["data", "mnist", "--downloads", str(place / "downloads")])
    assert data.main() == 0
    assert str(place / "mnist.npz") in capsys.readouterr().out
    assert len(read_upload(place / "mnist.npz").train.labels) == 6


def test_files_that_torchvision_does_not_know_are_refused(
    mirror: dict[str, bytes],
    tmp_path: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = tmp_path / "mirror" / "train-labels-idx1-ubyte.gz"
    changed.write_bytes(gzip.compress(b"another"))
    monkeypatch.setattr(sys, "argv", ["data", "mnist", "--downloads", str(tmp_path / "downloads")])
    assert data.main() == 1
    assert "mnist could not be fetched" in capsys.readouterr().err
    assert not place.exists()


def test_a_set_that_is_there_is_left_alone(place: Path) -> None:
    place.mkdir()
    (place / "cifar10.zip").write_bytes(b"an archive of class folders")
    assert data.fetch("cifar10", place / "nowhere") == place / "cifar10.zip"


def test_a_set_that_is_not_there_says_how_to_get_it(place: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"data has no mnist\.npz.*python -m benchmarks\.data mnist.*DATALENS_TEST_DATA"
    ):
        dataset("mnist")
