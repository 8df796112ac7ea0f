"""Zip of class folders with PNG files, for torchvision's ImageFolder and everything that imitates it."""

import json
import re
import unicodedata
import zipfile
from pathlib import Path
from typing import Final

from datalens_service.data.export.png import choose_encoder
from datalens_service.data.export.writer import (
    ArchivePlace,
    SoftLabels,
    Writer,
    WrittenImages,
    fixed_entry,
    is_verbatim,
    provenance,
)

_NAME_LENGTH: Final = 64


def write(path: Path, released: WrittenImages) -> None:
    """Write `<class>/<number>.png`, `classes.json` (names and folders in label order) and `card.json`.

    Soft labels are in `metadata.csv`: the file's name, its class, then one column for each class in label order.

    PNG does not get smaller by packing, so entries are stored.
    """
    images, labels, schema, card, soft_labels, credentials = released
    folders = class_folders(schema.class_names)
    classes = {"class_names": list(schema.class_names), "folders": list(folders)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fixed_entry("card.json", zipfile.ZIP_STORED), provenance(card))
        archive.writestr(fixed_entry("classes.json", zipfile.ZIP_STORED), json.dumps(classes, ensure_ascii=False))
        names = [f"{folders[label]}/{number:08d}.png" for number, label in enumerate(labels)]
        if soft_labels is not None:
            archive.writestr(fixed_entry("metadata.csv", zipfile.ZIP_DEFLATED), _table(names, folders, soft_labels))
        encode = choose_encoder(is_verbatim(card), credentials)
        for name, image in zip(names, images, strict=True):
            archive.writestr(fixed_entry(name, zipfile.ZIP_STORED), encode(image))


WRITER: Final = Writer(
    name="imagefolder",
    title="Zip of folders, PNG",
    suffix="zip",
    media_type="application/zip",
    write=write,
    archived_as=ArchivePlace("data/train", "image/png"),
)


def _table(names: list[str], folders: tuple[str, ...], soft_labels: SoftLabels) -> str:
    """Return CSV that loaders of class folders know; folders are safe names of classes."""
    head = ",".join(["file_name", "label", *(f"probability_{folder}" for folder in folders)])
    rows = [
        ",".join([name, name.partition("/")[0], *(f"{share:.6g}" for share in shares)])
        for name, shares in zip(names, soft_labels, strict=True)
    ]
    return "\n".join([head, *rows, ""])


def class_folders(class_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one folder name per class, so that numbering the sorted folders gives our labels.

    Class names are used as they are where they are safe and already sorted; otherwise each gets its label,
    zero-padded, in front.
    """
    safe = [_safe(name) for name in class_names]
    distinct = len({name.casefold() for name in safe}) == len(safe)
    if safe == list(class_names) and safe == sorted(safe) and distinct:
        return tuple(safe)
    digits = len(str(len(safe) - 1))
    return tuple(f"{label:0{digits}d}_{name}".rstrip("_") for label, name in enumerate(safe))


def _safe(name: str) -> str:
    """Keep letters, digits, hyphens and underscores: nothing that hides a folder, climbs out of it or is a file."""
    composed = unicodedata.normalize("NFKC", name)
    return re.sub(r"[^\w-]+", "_", composed)[:_NAME_LENGTH].strip("_-")
