"""Terms for publishing a data set, which its maker chooses; the product chooses none."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Licence:
    """A licence that the maker may choose."""

    name: str
    url: str
    hub_id: str


LICENCES: Final[dict[str, Licence]] = {
    "CC0-1.0": Licence(
        "Creative Commons Zero 1.0 Universal", "https://creativecommons.org/publicdomain/zero/1.0/", "cc0-1.0"
    ),
    "CC-BY-4.0": Licence(
        "Creative Commons Attribution 4.0 International", "https://creativecommons.org/licenses/by/4.0/", "cc-by-4.0"
    ),
    "CC-BY-SA-4.0": Licence(
        "Creative Commons Attribution-ShareAlike 4.0 International",
        "https://creativecommons.org/licenses/by-sa/4.0/",
        "cc-by-sa-4.0",
    ),
    "CC-BY-NC-4.0": Licence(
        "Creative Commons Attribution-NonCommercial 4.0 International",
        "https://creativecommons.org/licenses/by-nc/4.0/",
        "cc-by-nc-4.0",
    ),
    "other": Licence("No licence was chosen", "https://spdx.org/licenses/", "other"),
}
"""Licences by SPDX id, and `other`."""


def licence_text(spdx: str, of_images: str | None = None) -> str:
    """Return the text of the file LICENSE.

    Args:
        of_images: Declared licence of public images that keep their own; None if there are none.
    """
    licence = LICENCES[spdx]
    if of_images is not None:
        return (
            f"The images keep their own terms ({describe_licence(of_images)}). Of the labels:\n\n{licence_text(spdx)}"
        )
    if spdx == "other":
        return (
            "No licence was chosen for this data set. Its rights holder has reserved all rights; ask before you use "
            "or pass it on.\n"
        )
    return f"{licence.name}\nSPDX-License-Identifier: {spdx}\n\nThe terms are at {licence.url}\n"


def describe_licence(declared: str) -> str:
    """Describe the licence of public images, beside their hash."""
    return f"licence: {declared}" if declared else "no licence was declared"


def describe_public_images(images: str, licence: str) -> str:
    """Name the owner who declared images public, and their licence."""
    return f"{images}, declared public by the owner of the private images ({describe_licence(licence)})"


OF_PUBLIC_IMAGES: Final = "The guarantee covers neither the public images nor anybody whom they show."
