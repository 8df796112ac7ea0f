"""Cases of training and test images in one archive, and of classes that are called like a split."""

import unicodedata
from typing import Final

from tests.data.builders import zipped

from .pictures import below, in_folders, pets, png
from .registry import case_file

TRAIN, TEST, VALIDATION = pets(), pets(start=6), pets(start=12)

SPLITS: Final = {
    "split_lower.zip": {**below("train", TRAIN), **below("test", TEST)},
    "split_capitals.zip": {**below("Train", TRAIN), **below("TEST", TEST)},
    "split_val.zip": {**below("train", TRAIN), **below("test", TEST), **below("val", VALIDATION)},
    "split_only_test.zip": below("test", TEST),
    "b_bus_test.zip": in_folders(("bus", "test")),
    "b_vehicles.zip": in_folders(("bus", "train")),
    "test_in_train.zip": {
        **below("train", TRAIN),
        **below("test", {**TEST, "cat/0.png": png(0), "dog/0.png": png(3)}),
    },
    "b_test_missing_class.zip": {
        **below("train", in_folders("abc")),
        **below("test", in_folders("ac", each=2, start=9)),
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
    return zipped({**below("train", train), **below("test", in_folders(("café", "dog"), each=2, start=6))})
