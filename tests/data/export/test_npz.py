from pathlib import Path

import numpy as np

from datalens_service.data.export import WrittenImages, npz


def test_keys_shapes_and_types_are_those_of_medmnist(tmp_path: Path, release: WrittenImages) -> None:
    npz.write(tmp_path / "a", release)
    with np.load(tmp_path / "a", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["class_names", "provenance", "train_images", "train_labels"]
        expected = release.images[..., 0] if release.schema.channels == 1 else release.images
        np.testing.assert_array_equal(arrays["train_images"], expected)
        np.testing.assert_array_equal(arrays["train_labels"], release.labels)
        assert arrays["train_labels"].dtype == np.int64
        assert arrays["class_names"].tolist() == list(release.schema.class_names)
