import io
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from datalens_service.data.export.png import encode_png
from datalens_service.errors import InvalidInput

from ..builders import random_images


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
