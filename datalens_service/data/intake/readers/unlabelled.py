"""Images without labels, for a classifier: one picture, an archive of pictures, or an NPZ."""

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.intake.readers import npz
from datalens_service.data.intake.readers.image_entries import check_entry, is_ignored, is_metadata
from datalens_service.data.intake.reading_choices import AS_IT_IS
from datalens_service.data.intake.untrusted.file_kinds import START_BYTES, find_kind, is_image_name
from datalens_service.data.intake.untrusted.images import decode_all
from datalens_service.data.intake.untrusted.limits import Limits
from datalens_service.data.intake.untrusted.source import Source, open_source
from datalens_service.data.notices import Notices

_FOREIGN: Final = (
    "Send one PNG or JPEG file, a zip or tar of such files, or an NPZ with one array named images. Labels are not "
    "needed."
)


class Unlabelled(NamedTuple):
    """Images in the order in which they are predicted.

    `names` are those of their files, sorted; there are none for arrays and for one picture.
    """

    images: Images
    names: tuple[str, ...]


def read_unlabelled(path: Path, limits: Limits, most_images: int) -> Unlabelled:
    """Read images of any accepted kind."""
    with open_source(path, limits) as source:
        if source.archive is not None and npz.recognises(source, AS_IT_IS):
            images = npz.read_images_alone(source)
            _check_count(len(images), most_images)
            return Unlabelled(images, ())
        return _pictures(source, most_images) if source.archive is not None else _picture(source)


def read_folder(path: Path, limits: Limits, most_images: int) -> Unlabelled:
    """Read pictures below a folder of this machine, by name."""
    files = sorted(one for one in path.rglob("*") if one.is_file() and is_image_name(one.name))
    if not files:
        raise InvalidDataset(_FOREIGN)
    _check_count(len(files), most_images)
    names = tuple(one.relative_to(path).as_posix() for one in files)
    contents = ((name, one.read_bytes) for name, one in zip(names, files, strict=True))
    return Unlabelled(decode_all(contents, len(files), None, limits, Notices()).images, names)


def _picture(source: Source) -> Unlabelled:
    kind = find_kind(source.start(START_BYTES))
    if kind is None:
        raise InvalidDataset(_FOREIGN)
    source.decoder.check_kind(kind)
    most = source.limits.image_file_bytes
    if source.path.stat().st_size > most:
        raise InvalidDataset(f"The image file is larger than {most} bytes.")
    content = [("", source.path.read_bytes)]
    return Unlabelled(decode_all(content, 1, None, source.limits, source.notices).images, ())


def _pictures(source: Source, most_images: int) -> Unlabelled:
    named = (one for one in source.entries if not is_ignored(one.filename) and not is_metadata(one.filename))
    entries = sorted(named, key=lambda one: one.filename)
    if not entries:
        raise InvalidDataset(_FOREIGN)
    _check_count(len(entries), most_images)
    for entry in entries:
        check_entry(entry, source)
    contents = ((one.filename, partial(source.head, one, one.file_size)) for one in entries)
    images = decode_all(contents, len(entries), None, source.limits, source.notices).images
    return Unlabelled(images, tuple(entry.filename for entry in entries))


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise InvalidDataset(f"Send at most {most:,} images at once.")
