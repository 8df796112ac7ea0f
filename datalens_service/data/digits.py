"""Handwritten digits that come with scikit-learn: a real image set for the demo, without a download.

1,797 grey images of 8 by 8 pixels, the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, CC BY 4.0).
"""

from typing import Final

import numpy as np

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Split, Upload
from datalens_service.data.intake.assembly import build_upload

_LARGEST_VALUE: Final = 16
_TEST_SHARE: Final = 0.2
_SPLIT_SEED: Final = 0


def digits() -> Upload:
    """Return schema, training split (80 %) and test split (20 %), the same on every call.

    Raises:
        WorkerUnavailable: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise WorkerUnavailable(
            "The demo data comes with scikit-learn. Install it with: pip install 'datalens-service[demo]'"
        ) from error
    pixels, target = load_digits(return_X_y=True)
    images = np.rint(pixels.reshape(-1, 8, 8, 1) * (255 / _LARGEST_VALUE)).astype(np.uint8)
    labels = np.asarray(target, dtype=np.int64)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    test, train = np.split(order, [round(_TEST_SHARE * len(labels))])
    names = tuple(str(digit) for digit in range(10))
    return build_upload(Split(images[train], labels[train]), Split(images[test], labels[test]), names)
