"""Cases of arrays: names, shapes and types in NPZ files, NPY files, MNIST's own format and a CSV of pixels."""

import gzip
import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.data.builders import npy_bytes, zipped
from tests.data.uploads import idx

from .pictures import noise, tar_of
from .registry import case_file

Arrays = dict[str, NDArray[Any]]


def npz(**arrays: NDArray[Any]) -> bytes:
    return zipped({f"{name}.npy": npy_bytes(values) for name, values in arrays.items()})


def stack(images: int, *shape: int, below: int = 230) -> NDArray[Any]:
    return noise(images, images, *(shape or (8, 8)), below=below)


def turns(images: int) -> NDArray[np.int64]:
    """Two classes in turn."""
    return np.arange(images, dtype=np.int64) % 2


IMAGES, LABELS = stack(8), turns(8)

KEYS: Final[dict[str, Arrays]] = {
    "key_images_labels.npz": {"images": IMAGES, "labels": LABELS},
    "key_x_y.npz": {"x": IMAGES, "y": LABELS},
    "key_capital_X_y.npz": {"X": IMAGES, "y": LABELS},
    "key_data_targets.npz": {"data": IMAGES, "targets": LABELS},
    "key_data_labels.npz": {"data": IMAGES, "labels": LABELS},
    "key_unknown.npz": {"pics": IMAGES, "kinds": LABELS},
    "key_keras.npz": {"x_train": IMAGES, "y_train": LABELS, "x_test": stack(4), "y_test": turns(4)},
    "key_medmnist.npz": {
        name: values
        for number, split in enumerate(("train", "val", "test"))
        for name, values in {
            f"{split}_images": noise(number, 8, 8, 8),
            f"{split}_labels": LABELS[:, np.newaxis],
        }.items()
    },
    "class_names.npz": {"images": IMAGES, "labels": LABELS, "class_names": np.array(["cat", "dog"])},
    "groups.npz": {"images": IMAGES, "labels": LABELS, "groups": np.arange(8) // 2},
    "flat64.npz": {"X": stack(8, 64), "y": LABELS},
}
"""Arrays by their names."""

SHAPES: Final[dict[str, NDArray[Any]]] = {
    "flat784.npz": stack(8, 784),
    "uint16.npz": stack(8, 8, 8, below=4096),
    "float255.npz": IMAGES.astype(np.float32),
    "float01.npz": IMAGES.astype(np.float32) / 255,
    "int64.npz": IMAGES.astype(np.int64),
    "rgb.npz": stack(8, 8, 8, 3),
    "nchw.npz": stack(8, 3, 8, 8),
    "one.npz": stack(1),
    "five.npz": stack(5),
    "empty_array.npz": np.zeros((0, 8, 8), dtype=np.uint8),
    "two_pixels.npz": stack(8, 2, 2),
    "strip.npz": stack(8, 8, 24),
}
"""Images of two classes in turn."""

for _name, _arrays in KEYS.items():
    case_file(_name)(lambda arrays=_arrays: npz(**arrays))
for _name, _images in SHAPES.items():
    case_file(_name)(lambda images=_images: npz(images=images, labels=turns(len(images))))


@case_file("nan.npz")
def a_pixel_that_is_no_number() -> bytes:
    images = IMAGES.astype(np.float32) / 255
    images[3, 2, 2] = np.nan
    return npz(images=images, labels=LABELS)


@case_file("object_pickle.npz")
def labels_in_a_pickle() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(["cat", "dog"] * 4, dtype=object), allow_pickle=True)
    return zipped({"images.npy": npy_bytes(IMAGES), "labels.npy": buffer.getvalue()})


@case_file("npy_pair.tar")
def two_arrays_in_a_tar() -> bytes:
    return tar_of({"images.npy": npy_bytes(IMAGES), "labels.npy": npy_bytes(LABELS)})


@case_file("npy_alone.npy")
def images_without_labels() -> bytes:
    return npy_bytes(IMAGES)


@case_file("idx.tar")
def the_files_of_mnist() -> bytes:
    train = {"train-images-idx3-ubyte.gz": idx(IMAGES), "train-labels-idx1-ubyte.gz": idx(LABELS)}
    test = {"t10k-images-idx3-ubyte": idx(stack(4)), "t10k-labels-idx1-ubyte": idx(turns(4))}
    return tar_of({**{name: gzip.compress(content, mtime=0) for name, content in train.items()}, **test})


@case_file("mnist_like.csv")
def a_table_of_pixels() -> bytes:
    header = ["label", *(f"pixel{number}" for number in range(64))]
    rows = [[label, *image.ravel()] for image, label in zip(IMAGES, LABELS, strict=True)]
    return ("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n").encode()
