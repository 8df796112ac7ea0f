"""Small made-up files under the names that the pages use. A new name on a page needs a line in `STAND_INS`."""

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

CLASSES: Final = 4
Images = npt.NDArray[np.uint8]
Writer = Callable[[Path, np.random.Generator], None]
Drawing = Callable[[np.random.Generator], Iterable[tuple[str, bytes]]]
"""Files by name."""
# The least for the networks that the pages name, and for a rehearsal of an audit.
_SIDE: Final = 16
_FOR_AUDITS: Final = 100
_PER_CLASS: Final = 30
# A private set beside public images that the page brings to this size.
_PREPARED_SIDE: Final = 28


def write_stand_ins(folder: Path, page: str, text: str) -> None:
    """The files that `text` reads, other ones for every page: a service knows records again."""
    for words, write in STAND_INS.items():
        path = folder / words.split()[0]
        if re.search(rf"(?<![\w./-])(?<!--out )(?<!\(\"){re.escape(words)}(?![\w.])", text) and not path.exists():
            write(path, np.random.default_rng(zlib.crc32(f"{page} {words}".encode())))


def draw_images(rng: np.random.Generator, per_class: int, side: int = _SIDE) -> tuple[Images, npt.NDArray[np.int64]]:
    """Grey images in four classes, each bright in a quarter of its own."""
    labels = np.arange(CLASSES * per_class) % CLASSES
    images = rng.integers(0, 60, (len(labels), side, side), dtype=np.uint8)
    half = side // 2
    for label in range(CLASSES):
        images[labels == label, label // 2 * half :, label % 2 * half :][:, :half, :half] += 150
    return images, labels


def write_private(path: Path, rng: np.random.Generator, *, with_test: bool) -> None:
    """Enough images for every attack of an audit; some of them need test images."""
    images, labels = draw_images(rng, _FOR_AUDITS)
    arrays = {"train_images": images, "train_labels": labels}
    if with_test:
        arrays["test_images"], arrays["test_labels"] = draw_images(rng, 20)
    np.savez_compressed(path, **arrays)


def _npz(per_class: int = _PER_CLASS, side: int = _SIDE, images_of_one: int = 0) -> Writer:
    """Without a test split nothing is evaluated, which would take longer than all the rest."""

    def write(path: Path, rng: np.random.Generator) -> None:
        images, labels = draw_images(rng, per_class, side)
        groups = {"groups": np.arange(len(labels)) // images_of_one} if images_of_one else {}
        np.savez_compressed(path, train_images=images, train_labels=labels, **groups)

    return write


def _zip_of(draw: Drawing) -> Writer:
    return lambda path, rng: _write_zip(path, draw(rng))


def _folder_of(draw: Drawing) -> Writer:
    def write(path: Path, rng: np.random.Generator) -> None:
        for name, content in draw(rng):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)

    return write


def _write_both(path: Path, rng: np.random.Generator) -> None:
    """What is in the parts beside it."""
    parts = [zipfile.ZipFile(path.with_name(f"part-{number}.zip")) for number in (1, 2)]
    _write_zip(path, ((f"{Path(name).parent}/{part}-{Path(name).name}", files.read(name))
                      for part, files in enumerate(parts) for name in files.namelist()))  # fmt: skip


def _write_people(path: Path, rng: np.random.Generator) -> None:
    files = list(_classes(rng, 30))
    rows = [(name, name.split("/")[0], number // 5) for number, (name, _) in enumerate(files)]
    table = io.StringIO()
    csv.writer(table).writerows([("file_name", "label", "group"), *rows])
    _write_zip(path, [*files, ("metadata.csv", table.getvalue().encode())])


def _write_picture(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(_png(draw_images(rng, 1)[0][-1]))


def _classes(rng: np.random.Generator, per_class: int = 10) -> Iterable[tuple[str, bytes]]:
    for number, (image, label) in enumerate(zip(*draw_images(rng, per_class), strict=True)):
        yield f"{label}/{number}.png", _png(image)


def _photographs(rng: np.random.Generator) -> Iterable[tuple[str, bytes]]:
    """In colour, of several sizes."""
    for number in range(40):
        shape = (60 + number, 90 - number, 3)
        yield f"{number % 2}/{number}.png", _png(rng.integers(0, 255, shape, dtype=np.uint8))


def _patients(rng: np.random.Generator) -> Iterable[tuple[str, bytes]]:
    """Folders class/patient/image of 16 bits."""
    for number, shades in enumerate(rng.integers(0, 4000, (24, 40, 50)).astype(np.uint16)):
        yield f"{number % 2}/patient-{number // 4}/{number}.png", _png(shades)


def _pictures(rng: np.random.Generator) -> Iterable[tuple[str, bytes]]:
    return ((f"{number}.png", _png(image)) for number, image in enumerate(draw_images(rng, 2)[0]))


def _png(image: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _write_zip(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)


STAND_INS: Final[dict[str, Writer]] = {
    "mnist.npz": _npz(),
    "digits.npz": _npz(_FOR_AUDITS),
    "other.npz": _npz(),
    "scans.npz --records-per-unit": _npz(images_of_one=5),
    "scans.npz": _npz(10, _PREPARED_SIDE),
    "open.npz": _npz(10, _PREPARED_SIDE),
    "open.zip": _zip_of(_classes),
    "part-1.zip": _zip_of(_classes),
    "part-2.zip": _zip_of(_classes),
    "both.zip": _write_both,
    "scans.zip": _write_people,
    "photos.zip": _zip_of(_photographs),
    "photos": _folder_of(_photographs),
    "cheques": _folder_of(_photographs),
    "scans": _folder_of(_patients),
    "images.zip": _zip_of(_pictures),
    "new-images": _folder_of(_pictures),
    "image.png": _write_picture,
    "one-image.png": _write_picture,
}
