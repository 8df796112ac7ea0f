"""Cases of images: files that are none, modes and formats that need preparation, sizes and endings."""

import zlib
from typing import Any, Final

from PIL import Image

from tests.data.builders import encoded, grey, zipped
from tests.data.hostile import png as png_of

from .pictures import noise, pets, png, scan
from .registry import case_file


def colours(number: int) -> Image.Image:
    return Image.fromarray(noise(number, 8, 8, 3))


def shades(number: int) -> Image.Image:
    return Image.fromarray(noise(number))


def jpeg(number: int) -> bytes:
    return encoded(shades(number), "JPEG")


def pages(number: int, file_format: str, **options: Any) -> bytes:
    """A file with two images."""
    return encoded(shades(number), file_format, save_all=True, append_images=[shades(50 + number)], **options)


def transparent(number: int) -> Image.Image:
    return Image.fromarray(noise(number, 8, 8, 4), "RGBA")


def transparent_grey(number: int) -> Image.Image:
    return Image.merge("LA", [shades(number), shades(50 + number)])


def huge(width: int = 60_000, height: int = 60_000) -> bytes:
    """A few bytes that claim billions of pixels."""
    return png_of(width, height, 8, 0, zlib.compress(bytes(2**14)))


DAMAGED: Final = {
    "folders_truncpng.zip": png(8)[:90],
    "folders_zerobyte.zip": b"",
    "folders_notimage.zip": b"<html>not found</html>\n",
    "huge_png.zip": huge(),
}
"""What is called cat/9.png beside eight pets."""

KINDS: Final = {
    "folders_gif.zip": (".gif", lambda number: pages(number, "GIF", duration=100)),
    "tiff_pages.zip": (".tif", lambda number: pages(number, "TIFF")),
    "rgba.zip": (".png", lambda number: encoded(transparent(number))),
    "la.zip": (".png", lambda number: encoded(transparent_grey(number))),
    "cmyk.zip": (".jpg", lambda number: encoded(colours(number).convert("CMYK"), "JPEG")),
    "palette.zip": (".png", lambda number: encoded(colours(number).convert("P"))),
    "one_bit.zip": (".png", lambda number: encoded(shades(number).convert("1"))),
    "webp.zip": (".webp", lambda number: encoded(colours(number), "WEBP", lossless=True)),
    "bmp.zip": (".bmp", lambda number: encoded(shades(number), "BMP")),
    "rgb_png.zip": (".png", lambda number: encoded(colours(number))),
    "grey_jpeg.zip": (".jpeg", jpeg),
    "png16.zip": (".png", scan),
    "upper_case.zip": (".PNG", png),
    "wrong_ending.zip": (".jpg", png),
    "no_ending.zip": ("", png),
    "strips.zip": (".png", lambda number: png(number, 8, 24)),
    "sizes_mixed.zip": (".png", lambda number: png(number, *((8, 12, 16)[number % 3],) * 2)),
}
"""Six pets: the ending of their names, and what is in them."""

for _name, _content in DAMAGED.items():
    case_file(_name)(lambda content=_content: zipped({**pets(each=4), "cat/9.png": content}))
for _name, (_ending, _make) in KINDS.items():
    case_file(_name)(lambda make=_make, ending=_ending: zipped(pets(make, ending)))


@case_file("folders_truncjpg.zip")
def a_jpeg_cut_off_in_its_pixels() -> bytes:
    return zipped({**pets(jpeg, ".jpg", each=4), "cat/9.jpg": jpeg(8)[:-30]})


@case_file("grey_and_rgb.zip")
def two_images_in_colour() -> bytes:
    return zipped({**pets(), "cat/3.png": encoded(colours(6)), "dog/3.png": encoded(colours(7))})


@case_file("exif_turned.zip")
def two_images_that_a_camera_turned() -> bytes:
    upright = pets(lambda number: encoded(Image.fromarray(noise(number, 16, 12)), "JPEG"), ".jpg")
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: the first row is at the right
    lying = [encoded(Image.fromarray(noise(number, 12, 16)), "JPEG", exif=turned) for number in (6, 7)]
    return zipped({**upright, "cat/3.jpg": lying[0], "dog/3.jpg": lying[1]})


@case_file("constant_images.zip")
def an_image_of_one_value() -> bytes:
    return zipped({**pets(), "cat/3.png": grey(137)})
