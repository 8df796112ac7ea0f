"""The interface of output formats, the marks that their files carry, and zip entries."""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.content_credentials import TRAINED_ALGORITHMIC_MEDIA, ContentCredentials

SoftLabels = NDArray[np.float32]
"""(n, classes) probabilities of every class."""


class WrittenImages(NamedTuple):
    """The content of a file; all of it public.

    Attributes:
        credentials: Signs each PNG of synthetic images in the name of the operator; None if there is no certificate.
    """

    images: Images
    labels: Labels
    schema: Schema
    card: dict[str, Any]
    soft_labels: SoftLabels | None = None
    credentials: ContentCredentials | None = None


class ArchivePlace(NamedTuple):
    """The place of a format's images in a release archive."""

    name: str
    media_type: str


@dataclass(frozen=True)
class Writer:
    """One output format.

    Attributes:
        name: Key in `WRITERS`, and the value of `format` in the REST API: lower-case letters and digits.
        suffix: Ending of its files, without the dot.
        write: Makes a file that states whether it is synthetic; equal input gives equal bytes, but for
            signatures of C2PA. It is not atomic.
        archived_as: Its place in a release archive; None: `data/synthetic.<suffix>`, with the media type of a download.
    """

    name: str
    title: str
    suffix: str
    media_type: str
    write: Callable[[Path, WrittenImages], None]
    archived_as: ArchivePlace | None = None

    @property
    def archive_place(self) -> ArchivePlace:
        return self.archived_as or ArchivePlace(f"data/synthetic.{self.suffix}", self.media_type)


_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_READABLE: Final = 0o100644 << 16


def fixed_entry(name: str, compression: int) -> zipfile.ZipInfo:
    """Make an entry without clock, user or operating system in it."""
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.create_system, entry.external_attr, entry.compress_type = _UNIX, _READABLE, compression
    return entry


XMP: Final = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/">'
    f"<Iptc4xmpExt:DigitalSourceType>{TRAINED_ALGORITHMIC_MEDIA}</Iptc4xmpExt:DigitalSourceType>"
    '</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="r"?>'
)
"""XMP packet that says the same inside a PNG."""


def is_verbatim(card: Mapping[str, Any]) -> bool:
    """Tell whether images are public ones or parts of them, so that no model made them."""
    return bool((card.get("public_images") or {}).get("verbatim"))


def provenance(card: dict[str, Any]) -> str:
    """Return the card as canonical JSON; `synthetic` and `digital_source_type` are set whatever the card says."""
    made = {} if is_verbatim(card) else {"digital_source_type": TRAINED_ALGORITHMIC_MEDIA}
    statement = {**card, "synthetic": not is_verbatim(card), **made}
    return json.dumps(statement, sort_keys=True, ensure_ascii=False, allow_nan=False)
