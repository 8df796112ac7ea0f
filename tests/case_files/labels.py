"""Cases of labels: their types, their number, and classes of unlike sizes."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tests.data.builders import zipped

from .arrays import npz, stack
from .pictures import pets, png
from .registry import case_file

LABELS: Final[dict[str, ArrayLike]] = {
    "b_noncontig_small.npz": [3, 77, 999] * 3,
    "b_labels_1based.npz": [1, 2, 3] * 3,
    "labels_float.npz": [0.0, 1.0] * 4,
    "labels_float_nan.npz": [0.0, np.nan] * 4,
    "labels_bool.npz": [False, True] * 4,
    "labels_bytes.npz": [b"cat", b"dog"] * 4,
    "labels_str.npz": ["cat", "dog"] * 4,
    "labels_onehot.npz": np.array([[1, 0], [0, 1]] * 4, dtype=np.uint8),
    "labels_onehot_soft.npz": [[0.5, 0.5]] * 8,
    "labels_multi.npz": np.ones((8, 2), dtype=np.uint8),
    "labels_n1.npz": [[0], [1]] * 4,
    "labels_negative.npz": [-1, 0] * 4,
    "labels_one_class.npz": [0] * 8,
    "imbalanced.npz": [0] * 121 + [1],
}
"""The labels of as many images."""

for _name, _labels in LABELS.items():
    case_file(_name)(lambda labels=_labels: npz(images=stack(len(labels)), labels=np.asarray(labels)))


@case_file("labels_short.npz")
def one_label_too_few() -> bytes:
    return npz(images=stack(8), labels=np.arange(7) % 2)


@case_file("folders_oneimgclass.zip")
def a_class_of_one_image() -> bytes:
    return zipped({**pets(each=4), "horse/0.png": png(8)})


@case_file("b_conflict_labels.zip")
def one_image_in_two_classes() -> bytes:
    return zipped({**pets(), "dog/3.png": png(0)})


@case_file("repeated_images.zip")
def one_image_three_times() -> bytes:
    return zipped({**pets(), "cat/3.png": png(0), "cat/4.png": png(0)})
