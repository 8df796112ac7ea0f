"""WebDataset: one tar, `<number>.png` beside `<number>.cls`. For images above about 64 by 64: tar pads each file.

Card and class names lie under names that the libraries `webdataset` and `datasets` do not take for records:
https://github.com/webdataset/webdataset ("meta_prefix", "meta_suffix").
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Final

from datalens_service.data.export.png import choose_encoder
from datalens_service.data.export.writer import ArchivePlace, Writer, WrittenImages, is_verbatim, provenance

CARD: Final = "__card.json__"
CLASSES: Final = "__classes.json__"


def write(path: Path, released: WrittenImages) -> None:
    """Write the card, the class names in label order, and per image PNG, label as text and, if any, soft labels."""
    images, labels, schema, card, soft_labels, credentials = released
    encode = choose_encoder(is_verbatim(card), credentials)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, CARD, provenance(card).encode())
        _add(archive, CLASSES, json.dumps({"class_names": schema.class_names}, ensure_ascii=False).encode())
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            _add(archive, f"{number:08d}.png", encode(image))
            _add(archive, f"{number:08d}.cls", str(int(label)).encode())
            if soft_labels is not None:
                _add(
                    archive,
                    f"{number:08d}.json",
                    json.dumps({"label_probabilities": soft_labels[number].tolist()}).encode(),
                )


WRITER: Final = Writer(
    name="webdataset",
    title="WebDataset",
    suffix="tar",
    media_type="application/x-tar",
    write=write,
    archived_as=ArchivePlace("data/train-00000.tar", "application/x-tar"),
)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file without clock, user or group in it."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
