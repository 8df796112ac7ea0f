"""A release archive, a whole data set as one zip: images, card, licence, checksums, Croissant, datasheet and proof.

README.md  datasheet.md  croissant.json  classes.json  provenance.json  privacy.json  LICENSE  NOTICE
pixel-hashes.txt       of every synthetic image
SHA256SUMS             of every other file
SHA256SUMS.sig.json    signature of the sums, so of every file
data/train-00000-of-00001.parquet | data/synthetic.npz | data/train-00000.tar | data/train/<class>/<n>.png
"""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from datalens_service.base.signatures import SigningKey
from datalens_service.data.export import WRITERS, ArchivePlace
from datalens_service.data.export.croissant import DataFile, croissant
from datalens_service.data.export.licence import describe_licence, licence_text
from datalens_service.data.export.pages import SAMPLES, DrawnImages, dataset_card, datasheet, description
from datalens_service.data.export.writer import fixed_entry, is_verbatim, provenance
from datalens_service.privacy.guarantee import card_guarantee

SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig.json"
SUMS_FORMAT: Final = "datalens-checksums/1"

_PICTURE: Final = "image/png"
_NOTICE: Final = (
    "The images in this data set are synthetic: a generator drew them, and none of them is a private image.\n"
    "They are marked as such (IPTC Digital Source Type trainedAlgorithmicMedia); leave the marking in when you pass\n"
    "them on. Saving an image anew, changing its format or its size, or reading its pixels into an array drops the\n"
    "marking: mark what you make of these images again. pixel-hashes.txt recognises an image whose pixels are\n"
    "unchanged: `datalens verify IMAGE --release ARCHIVE`.\n"
)


_PUBLIC_NOTICE: Final = (
    "The images in this data set are public ones, as they were uploaded or cropped and mirrored; no model made\n"
    "them. Their labels were learned from private images under differential privacy. README.md names where they come\n"
    "from: that licence holds ({licence}).\n"
)


def write_bundle(
    path: Path,
    images: Path,
    format: str,
    card: dict[str, Any],
    *,
    drawn: DrawnImages,
    name: str,
    spdx: str,
    further: Mapping[str, bytes],
    key: SigningKey,
) -> None:
    """Write the zip; equal input gives equal bytes.

    Args:
        further: More public files by name, `privacy.json`, the job's proof, among them.
    """
    place = WRITERS[format].archive_place
    sums = _digests(images, place)
    data = DataFile(place.name, place.media_type, sums.get(place.name, ""), images.stat().st_size)
    texts = {**_texts(card, data, drawn, name, spdx, pictured=SAMPLES in further), **further}
    with zipfile.ZipFile(path, "w") as archive:
        write_signed(archive, texts, sums, key)
        _copy_images(images, place, archive)


def write_signed(
    archive: zipfile.ZipFile, files: Mapping[str, bytes], sums: Mapping[str, str], key: SigningKey
) -> None:
    """Write files, their SHA-256 beside those of other files in `sums`, and a signature over all of these."""
    sums = {**sums, **{name: hashlib.sha256(content).hexdigest() for name, content in files.items()}}
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()
    document = {"format": SUMS_FORMAT, "file": SUMS, "sha256": hashlib.sha256(lines).hexdigest()}
    signed = {**files, SUMS: lines, SUMS_SIGNATURE: _json(key.sign(document)).encode()}
    for name, content in sorted(signed.items()):
        archive.writestr(fixed_entry(name, zipfile.ZIP_DEFLATED), content)


def _digests(images: Path, place: ArchivePlace) -> dict[str, str]:
    """Return the SHA-256 of every file of images, by its name in the bundle."""
    if place.media_type == _PICTURE:
        with zipfile.ZipFile(images) as folder:
            return {f"{place.name}/{name}": hashlib.sha256(folder.read(name)).hexdigest() for name in _pictures(folder)}
    with images.open("rb") as file:
        return {place.name: hashlib.file_digest(file, "sha256").hexdigest()}


def _copy_images(images: Path, place: ArchivePlace, archive: zipfile.ZipFile) -> None:
    """Copy images as stored entries, since they are packed already."""
    if place.media_type == _PICTURE:
        with zipfile.ZipFile(images) as folder:
            for name in _pictures(folder):
                archive.writestr(fixed_entry(f"{place.name}/{name}", zipfile.ZIP_STORED), folder.read(name))
        return
    entry = fixed_entry(place.name, zipfile.ZIP_STORED)
    with images.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
        shutil.copyfileobj(source, target)


def _pictures(folder: zipfile.ZipFile) -> list[str]:
    """List the images, and the table of soft labels that loaders expect beside them."""
    return [name for name in folder.namelist() if name.endswith((".png", ".csv"))]


def _texts(
    card: dict[str, Any], data: DataFile, drawn: DrawnImages, name: str, spdx: str, *, pictured: bool
) -> dict[str, bytes]:
    classes = {"class_names": list(card["images"]["class_names"])}
    metadata = croissant(card, data, name=name, spdx=spdx, description=description(card, drawn))
    texts = {
        "README.md": dataset_card(card, drawn, name=name, spdx=spdx, pattern=data.pattern, pictured=pictured),
        "datasheet.md": datasheet(card, drawn, name=name, spdx=spdx, pictured=pictured),
        "classes.json": _json(classes),
        "croissant.json": _json(metadata),
        "provenance.json": provenance(card),
        "LICENSE": licence_text(spdx, card["public_images"].get("license", "") if is_verbatim(card) else None),
        "NOTICE": _notice(card),
    }
    return {file: text.encode() for file, text in texts.items()}


def _notice(card: Mapping[str, Any]) -> str:
    about_images = _NOTICE
    if is_verbatim(card):
        about_images = _PUBLIC_NOTICE.format(licence=describe_licence(card["public_images"].get("license", "")))
    return f"{about_images}\n{card_guarantee(card['privacy'])}\n"


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False)
