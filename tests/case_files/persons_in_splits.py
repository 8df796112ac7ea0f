"""Cases of persons with training images and test images, in names of files, and with keys that look alike."""

import io
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.builders import zipped

from .persons import dicom_scan
from .pictures import noise, png, tar_of
from .registry import case_file

TRAIN = ("ada", "bob", "cem", "ada", "bob", "cem")
TEST = ("cem", "dan", "ada", "dan")
"""Two of three persons with test images have training images."""
LABELS = ("cat", "dog")


def images_of(split: str, persons: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Number and person of each image, by its name: cats and dogs in turn."""
    start = 0 if split == "train" else 100
    return {f"{split}/{LABELS[n % 2]}/{n}": (start + n, person) for n, person in enumerate(persons)}


def both(train: Sequence[str] = TRAIN, test: Sequence[str] = TEST) -> dict[str, tuple[int, str]]:
    return {**images_of("train", train), **images_of("test", test)}


def table(rows: Mapping[str, str]) -> bytes:
    return "\n".join(["file_name,patient", *(f"{name},{person}" for name, person in rows.items())]).encode()


@case_file("persons_both_csv.zip")
def named_by_a_table() -> bytes:
    files = {f"{name}.png": png(number) for name, (number, _) in both().items()}
    return zipped({**files, "metadata.csv": table({f"{name}.png": person for name, (_, person) in both().items()})})


@case_file("persons_both_folders.zip")
def in_folders_of_persons() -> bytes:
    files = {}
    for name, (number, person) in both().items():
        folder, _, last = name.rpartition("/")
        files[f"{folder}/{person}/{last}.png"] = png(number)
    return zipped(files)


@case_file("persons_both_dicom.zip")
def named_by_dicom_files() -> bytes:
    return zipped({f"{name}.dcm": dicom_scan(number, person) for name, (number, person) in both().items()})


def rows_of(split: str, persons: Sequence[str]) -> bytes:
    images = images_of(split, persons)
    columns = {
        "image": [png(number) for number, _ in images.values()],
        "label": [name.split("/")[1] for name in images],
        "patient": [person for _, person in images.values()],
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


@case_file("persons_both_parquet.zip")
def in_a_column() -> bytes:
    return zipped(
        {f"data/{split}-0.parquet": rows_of(split, persons) for split, persons in (("train", TRAIN), ("test", TEST))}
    )


@case_file("persons_both_webdataset.tar")
def beside_each_image() -> bytes:
    files = {}
    for name, (number, person) in both().items():
        split, label, last = name.split("/")
        files[f"{split}/{last}.png"] = png(number)
        files[f"{split}/{last}.json"] = json.dumps({"label": label, "patient": person}).encode()
    return tar_of(files)


@case_file("persons_both.npz")
def in_arrays() -> bytes:
    arrays = {}
    for split, persons in (("train", TRAIN), ("test", TEST)):
        images = images_of(split, persons)
        arrays[f"{split}_images"] = np.stack([noise(number) for number, _ in images.values()])
        arrays[f"{split}_labels"] = np.array([name.split("/")[1] for name in images])
        arrays[f"{split}_groups"] = np.array(persons)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@case_file("persons_apart.zip")
def other_persons_in_the_test_split() -> bytes:
    named = both(test=("dan", "eve", "dan", "eve"))
    files = {f"{name}.png": png(number) for name, (number, _) in named.items()}
    return zipped({**files, "metadata.csv": table({f"{name}.png": person for name, (_, person) in named.items()})})


@case_file("persons_test_unnamed.zip")
def a_table_of_training_images_alone() -> bytes:
    files = {f"{name}.png": png(number) for name, (number, _) in both().items()}
    named = {f"{name}.png": person for name, (_, person) in images_of("train", TRAIN).items()}
    return zipped({**files, "metadata.csv": table(named)})


@case_file("person_keys_alike.zip")
def keys_that_differ_in_little() -> bytes:
    named = images_of("train", ("P-A", "p-a", "P-A ", "P-01", "P_1", "P-B"))
    files = {f"{name}.png": png(number) for name, (number, _) in named.items()}
    return zipped({**files, "metadata.csv": table({f"{name}.png": person for name, (_, person) in named.items()})})


@case_file("person_anonymous.zip")
def one_patient_id_for_all() -> bytes:
    named = images_of("train", ("ANONYMOUS",) * 6)
    return zipped({f"{name}.dcm": dicom_scan(number, person) for name, (number, person) in named.items()})


@case_file("person_no_id.zip")
def no_patient_id_at_all() -> bytes:
    named = images_of("train", ("",) * 6)
    return zipped({f"{name}.dcm": dicom_scan(number, person) for name, (number, person) in named.items()})


def named_files(*names: str) -> bytes:
    """Cats and dogs in turn, in files of these names."""
    return zipped({f"{LABELS[number % 2]}/{name}.png": png(number) for number, name in enumerate(names)})


@case_file("person_names_chest.zip")
def names_as_of_chest_x_rays() -> bytes:
    names = [f"person{n // 4}_{kind}_{n}" for n, kind in enumerate(("bacteria", "virus") * 6)]
    return named_files(*names)


@case_file("person_names_numbers.zip")
def two_numbers_in_each_name() -> bytes:
    return named_files(*(f"IM-{n // 2:04}-{n % 2 + 1:04}" for n in range(12)))


@case_file("person_names_eyes.zip")
def two_sides_of_each_number() -> bytes:
    return named_files(*(f"{n // 2 + 10}_{('left', 'right')[n % 2]}" for n in range(12)))


@case_file("names_running.zip")
def numbers_of_images() -> bytes:
    return named_files(*(f"img_{n}" for n in range(12)))


@case_file("names_of_classes.zip")
def classes_and_numbers() -> bytes:
    return zipped({f"{LABELS[n % 2]}/{LABELS[n % 2]}_s_{n // 2:06}.png": png(n) for n in range(12)})


@case_file("column_date.zip")
def a_column_of_days() -> bytes:
    rows = [f"img_{n}.png,{LABELS[n % 2]},2024-02-0{1 + n % 3}" for n in range(12)]
    files = {f"img_{n}.png": png(n) for n in range(12)}
    return zipped({**files, "metadata.csv": "\n".join(["file_name,label,study date", *rows]).encode()})
