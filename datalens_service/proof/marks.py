"""Marks of synthetic images and of models: those in the file, and places where it is known.

metadata              XMP of IPTC, or the comment of a public or private image of this product
content credentials   a C2PA manifest in an image, or beside a model
release               the hashes of the pixels in a release archive
service               the hashes of the images that jobs of an installation packed
"""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict, Field, computed_field

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.base.signatures import SignatureInvalid
from datalens_service.data.dataset import Images
from datalens_service.data.export.content_credentials import (
    MANIFEST_SUFFIX,
    CredentialFinding,
    is_model,
    read_credentials,
)
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES, hash_pixels, parse_hashes
from datalens_service.data.export.png import PRIVATE, PUBLIC
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, find_kind
from datalens_service.proof.release_files import is_release, release_files
from datalens_service.proof.verdict import NotChecked

Status = Literal["found", "not found", "broken", "not checked"]
LookUp = Callable[[str], str | None]
"""Returns a sentence on the jobs that made the image with this hash; None if none did."""

_DRAWN_LATER: Final = "Only images that were packed are listed, not those that were drawn later."
_LARGEST_FILE: Final = 2**28
_MOST_PIXELS: Final = 2**26
_LARGEST_LIST: Final = 2**28
_SOURCE_TYPE: Final = re.compile(r"digitalsourcetype/([A-Za-z]+)")
_SYNTHETIC_TYPES: Final = frozenset(
    {"trainedAlgorithmicMedia", "compositeWithTrainedAlgorithmicMedia", "algorithmicMedia", "compositeSynthetic"}
)
_XMP: Final = ("XML:com.adobe.xmp", "xmp")
"""Names under which Pillow has the XMP of a PNG, and of JPEG and WebP."""


class MarkLine(BaseModel):
    """One place where a mark may be, and what is there."""

    model_config = ConfigDict(frozen=True)

    mark: str
    status: Status
    finding: str


class Marks(BaseModel):
    """The marks of a file."""

    model_config = ConfigDict(frozen=True)

    given: str = Field(description="What it is.")
    lines: tuple[MarkLine, ...]

    @computed_field(description="Whether a mark says that it is synthetic, and none is broken.")  # type: ignore[prop-decorator]
    @property
    def marked(self) -> bool:
        """Tell whether a mark says that it is synthetic, and none is broken."""
        return not self.broken and any(line.status == "found" for line in self.lines)

    @computed_field(description="Whether it was changed after it was signed.")  # type: ignore[prop-decorator]
    @property
    def broken(self) -> bool:
        """Tell whether it was changed after it was signed."""
        return any(line.status == "broken" for line in self.lines)


class WhereToLook(NamedTuple):
    """Places where marks are looked for besides the file.

    Attributes:
        release: A release archive, packed or not.
        authority: Certificates, PEM, of authorities that the reader trusts.
        service: Asks an installation.
    """

    release: Path | None = None
    authority: str | None = None
    service: LookUp | None = None


def can_be_marked(path: Path) -> bool:
    """Tell by its first bytes, or by its name, whether a file is an image, or a model with a manifest beside it."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        kind = find_kind(file.read(HEAD_BYTES))
    return (kind is not None and kind.is_picture) or (is_model(path.name) and _locate_manifest(path).is_file())


def find_marks(path: Path, where: WhereToLook) -> Marks:
    """Look for every mark of a file.

    Raises:
        InvalidInput: It is an image that cannot be decoded, or too large.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise InvalidInput(f"The file is larger than {_LARGEST_FILE // 2**20} MiB.")
    if is_model(path.name):
        manifest = _locate_manifest(path).read_bytes()
        return Marks(given="a model, with a manifest beside it", lines=(_read_credentials(content, where, manifest),))
    image, metadata = _open(content)
    pixel_hash = hash_pixels(image)
    lines = (
        metadata,
        _read_credentials(content, where),
        _search_release(pixel_hash, where.release),
        _ask_service(pixel_hash, where.service),
    )
    height, width = image.shape[:2]
    return Marks(given=f"an image of {width} by {height} pixels", lines=lines)


def _locate_manifest(path: Path) -> Path:
    return path.with_name(path.name + MANIFEST_SUFFIX)


def _open(content: bytes) -> tuple[Images, MarkLine]:
    """Return the pixels of an image, and what its metadata say."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise InvalidInput(f"The image has more than {_MOST_PIXELS:,} pixels.")
            picture.load()
            return np.asarray(picture.convert("RGB")), _read_metadata(picture)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidInput("The image cannot be decoded.") from error


def _read_metadata(picture: Image.Image) -> MarkLine:
    mark = "metadata"
    comment = picture.info.get("Comment")
    if comment == PRIVATE:
        return MarkLine(mark=mark, status="not found", finding=f"Its comment says: {PRIVATE}")
    if comment == PUBLIC:
        return MarkLine(mark=mark, status="not found", finding=f"Its comment says: {PUBLIC}")
    texts = [picture.info[name] for name in _XMP if name in picture.info]
    decoded = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
    types = {found for text in decoded for found in _SOURCE_TYPE.findall(text)} & _SYNTHETIC_TYPES
    if not types:
        return MarkLine(mark=mark, status="not found", finding="No XMP says that a trained model made it.")
    finding = f"XMP has the IPTC Digital Source Type {', '.join(sorted(types))}. Anybody can write or remove it."
    return MarkLine(mark=mark, status="found", finding=finding)


def _read_credentials(content: bytes, where: WhereToLook, manifest: bytes | None = None) -> MarkLine:
    mark = "content credentials"
    try:
        found = read_credentials(content, manifest=manifest, authority=where.authority)
    except WorkerUnavailable as error:
        return MarkLine(mark=mark, status="not checked", finding=error.text)
    if found is None:
        return MarkLine(mark=mark, status="not found", finding="There is no C2PA manifest.")
    return MarkLine(mark=mark, status=_judge(found), finding=_describe(found))


def _judge(found: CredentialFinding) -> Status:
    if found.state == "invalid":
        return "broken"
    return "found" if found.synthetic else "not found"


def _describe(found: CredentialFinding) -> str:
    if found.state == "invalid":
        return f"The file or its C2PA manifest was changed after it was signed ({', '.join(found.reasons)})."
    says = "says that a trained model made it" if found.synthetic else "does not say that a trained model made it"
    if found.state == "trusted":
        return f"A C2PA manifest {says}. It was signed by {found.signer}, for whom your authority vouches."
    return (
        f"A C2PA manifest {says}. Its certificate names {found.signer}, for whom nobody vouches that you named: "
        "anybody can make such a certificate."
    )


def _search_release(pixel_hash: str, release: Path | None) -> MarkLine:
    mark = "release"
    if release is None:
        return MarkLine(mark=mark, status="not checked", finding="No release archive was named.")
    if not is_release(release):
        raise InvalidInput(f"{release} is no release archive, packed or not.")
    try:
        with release_files(release) as files:
            if PIXEL_HASHES not in files.names:
                raise NotChecked(f"The release has no {PIXEL_HASHES}.")
            with files.open(PIXEL_HASHES) as file:
                known = parse_hashes(file.read(_LARGEST_LIST).decode("ascii", errors="replace"))
    except (NotChecked, SignatureInvalid) as error:
        return MarkLine(mark=mark, status="not checked", finding=str(error))
    if pixel_hash not in known:
        finding = f"None of the images in it has these pixels. {_DRAWN_LATER}"
        return MarkLine(mark=mark, status="not found", finding=finding)
    finding = "One of its synthetic images has exactly these pixels. Verify the archive itself to learn who signed it."
    return MarkLine(mark=mark, status="found", finding=finding)


def _ask_service(pixel_hash: str, service: LookUp | None) -> MarkLine:
    mark = "service"
    if service is None:
        return MarkLine(mark=mark, status="not checked", finding="No service was asked.")
    made = service(pixel_hash)
    if made is None:
        finding = f"No job there packed an image with these pixels. {_DRAWN_LATER}"
        return MarkLine(mark=mark, status="not found", finding=finding)
    return MarkLine(mark=mark, status="found", finding=made)
