"""Names of files that name persons are noticed in every format; those that number images are not."""

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from datalens_service.data import ReadingChoices, read_with_notices
from datalens_service.data.intake.persons_in_names import FileName, persons_in_names
from datalens_service.data.notices import Notice

from .builders import write_zip
from .uploads import LABELS, PNGS, table, write_bytes, write_tar


def found(paths: list[str], test: tuple[str, ...] = ()) -> tuple[int, str]:
    """How many persons are seen in paths `class/name`, and the one with most images; 0 and nothing without any."""
    splits = ((paths, False), (test, True))
    files = [FileName(path.split("/")[1], path.split("/")[0], is_test) for names, is_test in splits for path in names]
    persons = persons_in_names(files)
    return len(persons), str(persons[0]) if persons else ""


def both(pattern: str, *counts: int) -> list[str]:
    """Names in two classes, in turn: the first number is `{i}`, the second `{j}`."""
    numbers = [(i, j) for i in range(counts[0]) for j in range(counts[1])]
    return [f"{'ab'[(i + j) % 2]}/{pattern.format(i=i, j=j)}" for i, j in numbers]


PERSONS = {
    "chest X-rays of children": (
        [f"PNEUMONIA/person{i}_{k}_{j}.jpeg" for i in range(5) for k in ("bacteria", "virus") for j in range(3)]
        + [f"NORMAL/IM-{i:04}-{j:04}.jpeg" for i in range(9) for j in (1, 2)]
        + [f"NORMAL/NORMAL2-IM-{i:04}-{j:04}.jpeg" for i in range(9) for j in (1, 2)],
        (23, "person0: 6 images"),
    ),
    "scan and number": (both("patient{i}_{j:02}.png", 4, 3), (4, "patient0: 3 images")),
    "lesion and number": (both("ISIC_002430{i}_{j}.jpg", 6, 2), (6, "ISIC_0024300: 2 images")),
    "sides": (both("subj0{i}-{j}.png", 4, 2), (4, "subj00: 2 images")),
    "eyes": ([f"{i % 5}/{i}_{side}.jpeg" for i in range(40) for side in ("left", "right")], (40, "0: 2 images")),
    "patient and follow-up": (both("{i:08}_{j:03}.png", 30, 3), (30, "00000000: 3 images")),
    "cells of a slide": (
        [f"{c}/C{i}P1thinF_IMG_20150619_114756a_cell_{k}.png" for c in "ab" for i in range(9) for k in range(9)],
        (9, "C0P1thinF: 18 images"),
    ),
    "slides of one year": (both("SOB_B_A-14-2254{i}AB-40-{j:03}.png", 9, 4), (9, "SOB_B_A-14-22540AB: 4 images")),
    "initials": ([f"{'ab'[j % 2]}/{a}0{i}_{j}.png" for i, a in enumerate(("JD", "AB", "XY")) for j in range(4)],
                 (3, "AB01: 4 images")),
    "subjects of BIDS": (both("sub-A{i}_ses-{j}_T1w.png", 3, 3), (3, "sub-A0: 3 images")),
    "moods": ([f"{'ab'[i % 2]}/subject0{i}.{mood}.gif" for i in range(4) for mood in ("happy", "sad")],
              (4, "subject00: 2 images")),
    "the number behind": (both("bacteria_{j}_person{i}.png", 4, 2), (4, "person0: 2 images")),
    "case of letters": (["a/P1_1.png", "b/p1_2.png", "a/p2_1.png", "b/P2_2.png"], (2, "P1: 2 images")),
}  # fmt: skip

NOBODY = {
    "one stem": both("img_{i}.png", 60, 1),
    "numbers": [f"{c}/{i:04}.png" for c in "abc" for i in range(60)],
    "digit and number": [f"{c}/{c}_{i:05}.png" for c in "0123456789" for i in range(20)],
    "number and digit": [f"{c}/{i:05}_{c}.png" for c in "0123456789" for i in range(20)],
    "a digit called otherwise": [f"{['zero', 'one', 'two'][c]}/{c}_{i:05}.png" for c in range(3) for i in range(20)],
    "CIFAR": [
        f"{c}/{word}_s_{i:06}.png"
        for c, words in {"airplane": ("airplane", "biplane"), "cat": ("tabby", "tom")}.items()
        for word in words
        for i in range(20)
    ],
    "batches of CIFAR": [f"{i % 10}/data_batch_{i % 5}_{i}.png" for i in range(200)],
    "folds": [f"{'ab'[i % 2]}/fold{i % 7}_{i}.png" for i in range(200)],
    "pets": [f"{c}/{c}_{i}.jpg" for c in ("Abyssinian", "american_bulldog", "Bengal") for i in range(20)],
    "class and dot": [f"{c}/{c}.{i}.jpg" for c in ("cat", "dog") for i in range(20)],
    "class behind": [f"{c}/{i}_{c}.jpg" for c in ("cat", "dog") for i in range(20)],
    "ImageNet": [
        f"{c}/{word}_{i}.JPEG" for c, word in (("tench", "n01440764"), ("goldfish", "n01443537")) for i in range(20)
    ],
    "Caltech": [f"00{c}.x/00{c}_{i:04}.jpg" for c in range(1, 4) for i in range(20)],
    "birds": [f"{c}/{c}_{i:04}_{90000 + 7 * i}.jpg" for c in ("Black_Footed_Albatross", "Crow") for i in range(20)],
    "a camera": [f"{'ab'[i % 2]}/IMG_202305{1 + i % 28:02}_{100000 + i * 37}.jpg" for i in range(90)],
    "days": [f"{'ab'[i % 2]}/scan_2023-05-{1 + i % 9:02}_{i}.jpg" for i in range(90)],
    "screenshots": [f"{'ab'[i % 2]}/Screenshot 2023-05-{1 + i % 28:02} 10-11-{i % 60:02}.jpg" for i in range(60)],
    "years": [f"{'ab'[i % 2]}/{2007 + i % 5}_{i:06}.jpg" for i in range(100)],
    "UUIDs": [f"{'ab'[i % 2]}/{uuid.uuid5(uuid.NAMESPACE_DNS, str(i))}.png" for i in range(400)],
    "digests": [f"{'ab'[i % 2]}/{hashlib.sha256(str(i).encode()).hexdigest()}.png" for i in range(400)],
    "MedMNIST": [f"{i % 3}/train{i}_{i % 3}.png" for i in range(60)],
    "frames": both("frame_{i}_crop.png", 60, 1),
    "sizes": both("tile_64x64_{i}.png", 60, 1),
    "classes with digits": [f"{c}/{c}_{i}.jpg" for c in ("covid19", "h1n1", "type-2") for i in range(20)],
    "copies": both("photo ({i}).jpg", 60, 1),
    "UIDs": both("1.2.840.113619.2.55.{i}.png", 60, 1),
    "levels": [f"{'ab'[i % 2]}/level{i % 3}_{i}.png" for i in range(60)],
    "strata": [f"{'ab'[i % 2]}/ward{i % 4}_{i}.png" for i in range(1200)],
    "one person for everything": both("patient1_{i}.png", 60, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PERSONS)
def test_persons_are_seen(name: str) -> None:
    paths, expected = PERSONS[name]
    assert found(paths) == expected


@pytest.mark.parametrize("name", NOBODY)
def test_numbers_of_images_are_no_persons(name: str) -> None:
    paths = NOBODY[name]
    assert found(paths) == (0, "")
    assert found(paths, tuple(paths)) == (0, ""), "a test split counts from the start again"


def test_a_person_in_both_splits_is_counted_in_both() -> None:
    paths = both("person{i}_{j}.png", 3, 1)
    assert found(paths, ("a/person1_7.png",)) == (1, "person1: 2 images (1 to test on)")


def test_very_long_names_take_no_time() -> None:
    words = "_".join(["1"] * 250)
    assert found([f"a/{words}_{number}.png" for number in range(2000)]) == (0, "")


def named(number: int) -> str:
    return f"person{number % 4}_bacteria_{number}"


def paths_of(split: str, first: int) -> dict[str, bytes]:
    return {f"{split}/{LABELS[first + n]}/{named(n)}.jpeg": PNGS[first + n] for n in range(6)}


def in_shards() -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for number, png in enumerate(PNGS):
        files |= {f"{named(number)}.png": png, f"{named(number)}.cls": str(LABELS[number]).encode()}
    return files


def in_table() -> dict[str, bytes]:
    lines = [f"{named(number)}.png,{LABELS[number]}" for number in range(12)]
    files = {f"{named(number)}.png": png for number, png in enumerate(PNGS)}
    return {"metadata.csv": "\n".join(["file_name,label", *lines]).encode(), **files}


def in_rows() -> bytes:
    return table(None, image=[{"bytes": png, "path": f"{named(n)}.png"} for n, png in enumerate(PNGS)], label=LABELS)


def in_a_column() -> bytes:
    return table(None, image=PNGS, label=LABELS, filename=[f"{named(number)}.png" for number in range(12)])


FORMATS: dict[str, Callable[[Path], Path]] = {
    "folders": lambda path: write_zip(path, {**paths_of("train", 0), **paths_of("test", 6)}),
    "folders in a tar": lambda path: write_tar(path, {**paths_of("train", 0), **paths_of("test", 6)}),
    "metadata.csv": lambda path: write_zip(path, in_table()),
    "webdataset": lambda path: write_tar(path, in_shards()),
    "parquet paths": lambda path: write_bytes(path, in_rows()),
    "parquet column": lambda path: write_bytes(path, in_a_column()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_with_names_says_persons_in_them(tmp_path: Path, name: str) -> None:
    said = notices(FORMATS[name](tmp_path / "upload"))["persons_in_names"]
    assert said.count == 4
    # Of six images in each split, or of twelve in one.
    two = ": 4 images (2 to test on)"
    assert said.examples[0] == ("person0" + two if "folders" in name else "person0: 3 images")


def test_who_says_who_is_who_is_not_asked(tmp_path: Path) -> None:
    lines = [f"{named(number)}.png,{LABELS[number]},{number}" for number in range(12)]
    rows = "\n".join(["file_name,label,patient", *lines]).encode()
    path = write_zip(tmp_path / "upload", {**in_table(), "metadata.csv": rows})
    assert "persons_in_names" not in notices(path)


def notices(path: Path) -> dict[str, Notice]:
    return {notice.code.value: notice for notice in read_with_notices(path, ReadingChoices())[1]}
