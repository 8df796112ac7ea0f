import io
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.data.export import sample_grid
from datalens_service.data.export.png import encode_png

from ..builders import random_images


def grid(images: np.ndarray, labels: list[int], classes: int, columns: int) -> np.ndarray:
    _, height, width, channels = images.shape
    names = tuple(map(str, range(classes)))
    schema = Schema(channels=channels, height=height, width=width, class_names=names, num_units=2)
    data = sample_grid(images, np.array(labels, dtype=np.int64), schema, columns)
    return np.asarray(Image.open(io.BytesIO(data), formats=["PNG"]))


@pytest.mark.parametrize("channels", [1, 3])
def test_each_tile_is_the_enlarged_image_of_its_class(channels: int) -> None:
    images = random_images(6, 8, 8, channels)
    picture = grid(images, [1, 0, 1, 1, 1, 0], classes=3, columns=3)
    picture = picture.reshape(*picture.shape[:2], -1)
    assert picture.shape == (3 * 66 + 2, 3 * 66 + 2, channels)
    places = {(0, 0): 1, (0, 1): 5, (1, 0): 0, (1, 1): 2, (1, 2): 3}
    for row in range(3):
        for column in range(3):
            tile = picture[2 + 66 * row :, 2 + 66 * column :][:64, :64]
            if (row, column) in places:
                np.testing.assert_array_equal(tile[::8, ::8], images[places[row, column]])
                np.testing.assert_array_equal(tile[7::8, 7::8], images[places[row, column]])
            else:
                assert (tile == 255).all()


def test_gaps_are_blank() -> None:
    picture = grid(np.zeros((2, 8, 8, 1), np.uint8), [0, 0], classes=1, columns=2)
    assert (picture[:2] == 255).all()
    assert (picture[:, 66:68] == 255).all()
    assert (picture[2:66, 2:66] == 0).all()


@pytest.mark.parametrize(("side", "tile"), [(8, 64), (28, 56), (64, 64), (100, 100)])
def test_the_enlargement_is_whole_and_never_a_reduction(side: int, tile: int) -> None:
    assert grid(random_images(1, side, side, 1), [0], classes=1, columns=1).shape == (tile + 4, tile + 4)


def test_tiles_keep_the_proportions_of_images() -> None:
    images = random_images(1, 8, 24, 1)
    picture = grid(images, [0], classes=1, columns=1)
    np.testing.assert_array_equal(picture[2:-2, 2:-2], images[0, ..., 0].repeat(2, axis=0).repeat(2, axis=1))


def test_many_classes_do_not_make_an_endless_picture() -> None:
    assert grid(random_images(1, 4, 4, 1), [0], classes=1000, columns=1).shape == (50 * 66 + 2, 68)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_survive(channels: int) -> None:
    image = random_images(1, 1, 5, channels)[0]
    decoded = np.asarray(Image.open(io.BytesIO(encode_png(image)), formats=["PNG"]))
    np.testing.assert_array_equal(decoded.reshape(image.shape), image)


def test_the_marking_is_xmp_with_the_iptc_term() -> None:
    image = Image.open(io.BytesIO(encode_png(random_images(1, 4, 4, 1)[0])))
    assert isinstance(image.info["XML:com.adobe.xmp"], str)
    root = ET.fromstring(image.info["XML:com.adobe.xmp"])  # noqa: S314 - our own text
    term = root.find(".//{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}DigitalSourceType")
    assert term is not None
    assert term.text == "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channels_are_refused(channels: int) -> None:
    with pytest.raises(InvalidInput, match="one or three"):
        encode_png(random_images(1, 4, 4, channels)[0])
