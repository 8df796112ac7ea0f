"""Cases of training and test images in one archive, and of classes that are called like a split."""

import unicodedata
from typing import Final

from tests.data.builders import zipped

from .pictures import in_folders, pets, png, put_into
from .registry import case_file

TRAIN, TEST, VALIDATION = pets(), pets(start=6), pets(start=12)

SPLITS: Final = {
    "split_lower.zip": {**put_into("train", TRAIN), **put_into("test", TEST)},
    "split_capitals.zip": {**put_into("Train", TRAIN), **put_into("TEST", TEST)},
    "split_val.zip": {**put_into("train", TRAIN), **put_into("test", TEST), **put_into("val", VALIDATION)},
    "split_only_test.zip": put_into("test", TEST),
    "b_bus_test.zip": in_folders(("bus", "test")),
    "b_vehicles.zip": in_folders(("bus", "train")),
    "test_in_train.zip": {
        **put_into("train", TRAIN),
        **put_into("test", {**TEST, "cat/0.png": png(0), "dog/0.png": png(3)}),
    },
    "b_test_missing_class.zip": {
        **put_into("train", in_folders("abc")),
        **put_into("test", in_folders("ac", each=2, start=9)),
    },
}

for _name, _files in SPLITS.items():
    case_file(_name)(lambda files=_files: zipped(files))


@case_file("b_split_flat.zip")
def splits_without_classes() -> bytes:
    train = {f"train/img_{number}.png": png(number) for number in range(6)}
    return zipped({**train, **{f"test/img_{number}.png": png(6 + number) for number in range(4)}})


@case_file("b_class_named_train.zip")
def images_called_like_splits() -> bytes:
    names = [
        f"{kind}/{split}_{number}.png" for kind in ("bus", "tram") for split in ("train", "test") for number in (0, 1)
    ]
    return zipped({name: png(number) for number, name in enumerate(names)})


@case_file("b_nfd_train_nfc_test.zip")
def one_class_decomposed_in_train_and_composed_in_test() -> bytes:
    train = in_folders((unicodedata.normalize("NFD", "café"), "dog"))
    return zipped({**put_into("train", train), **put_into("test", in_folders(("café", "dog"), each=2, start=6))})
