"""Croissant 1.1: the data set as JSON-LD that search engines and loaders read, with its provenance (PROV-O)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from datalens_service.data.export.content_credentials import TRAINED_ALGORITHMIC_MEDIA
from datalens_service.data.export.licence import LICENCES, OF_PUBLIC_IMAGES
from datalens_service.data.export.pages import USES, usefulness
from datalens_service.data.export.writer import is_verbatim
from datalens_service.privacy.guarantee import card_guarantee

Json = dict[str, Any]

VERSION: Final = "http://mlcommons.org/croissant/1.1"

_PICTURE: Final = "image/png"
_TAR: Final = "application/x-tar"
# The media type by which loaders of Croissant know Parquet.
_PARQUET: Final = "application/x-parquet"
_CONTEXT: Final[Json] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


@dataclass(frozen=True)
class DataFile:
    """The images of the bundle: a file, or a folder of PNG files by class.

    Attributes:
        media_type: Type of the file, or of each file in the folder.
        sha256: Hash of the file, hexadecimal; empty for a folder.
    """

    name: str
    media_type: str
    sha256: str
    size: int

    @property
    def pattern(self) -> str:
        """Return the pattern of the files in the bundle that hold the images."""
        return f"{self.name}/*/*.png" if self.media_type == _PICTURE else self.name


def croissant(card: Mapping[str, Any], file: DataFile, *, name: str, spdx: str, description: str) -> Json:
    """Return the JSON-LD document."""
    public = is_verbatim(card)
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": name,
        "description": description,
        "version": "1.0.0",
        "datePublished": card["date"],
        "license": LICENCES["other" if public else spdx].url,
        "url": "https://example.org/replace-with-the-address-of-publication",
        "citeAs": f"{name}, {_kind(card)} made by {card['product']['name']} {card['product']['version']}.",
        "creator": {"@type": "Organization", "name": "The holder of the private records"},
        "keywords": ["public-images" if public else "synthetic", "differential-privacy", "image-classification"],
        "isLiveDataset": False,
        **({} if public else {"digitalSourceType": TRAINED_ALGORITHMIC_MEDIA}),
        **_responsible_use(card),
        **_provenance(card),
        "distribution": _distribution(file),
        "recordSet": _record_sets(card, file),
    }


def _responsible_use(card: Mapping[str, Any]) -> Json:
    privacy = card["privacy"]
    return {
        "rai:dataCollection": "The images are public ones, unchanged or cropped and mirrored; their labels were "
        "learned from private images."
        if is_verbatim(card)
        else "No image was collected: all were drawn from a generator.",
        "rai:dataLimitations": f"{usefulness(card)} Rare cases may be missing. Not covered by the guarantee: "
        + " ".join(privacy["not_covered"]),
        "rai:dataBiases": "Biases of the private records are learned like everything else that is common in them.",
        "rai:personalSensitiveInformation": f"None of the private records is copied. {card_guarantee(privacy)}"
        + (f" {OF_PUBLIC_IMAGES}" if card.get("public_images") else ""),
        "rai:dataUseCases": USES,
    }


def _kind(card: Mapping[str, Any]) -> str:
    """Return the kind of the images, in words."""
    return "labels of public images" if is_verbatim(card) else "synthetic images"


def _provenance(card: Mapping[str, Any]) -> Json:
    product = card["product"]
    software = {"@type": "prov:SoftwareAgent", "name": product["name"], "version": product["version"]}
    activity = {
        "@type": "prov:Activity",
        "name": f"Training with method {card['method']}",
        "prov:wasAssociatedWith": software,
        "prov:endedAtTime": card["date"],
    }
    sources = [{"@type": "prov:Entity", "name": "A private data set that is not published"}]
    if public := card.get("public_images"):
        said = {"license": public["license"]} if public.get("license") else {}
        known = {"@type": "prov:Entity", "name": public["name"], "identifier": f"sha256:{public['sha256']}"}
        sources.append(known | said)
    return {"prov:wasGeneratedBy": activity, "prov:wasDerivedFrom": sources[0] if len(sources) == 1 else sources}


def _distribution(file: DataFile) -> list[Json]:
    whole = {
        "@type": "cr:FileObject",
        "@id": "images",
        "name": "images",
        "description": "All images with their labels.",
        "contentUrl": file.name,
        "encodingFormat": file.media_type,
        "contentSize": f"{file.size} B",
        "sha256": file.sha256,
    }
    pictures = {
        "@type": "cr:FileSet",
        "@id": "pictures",
        "name": "pictures",
        "description": "The image files.",
        "encodingFormat": _PICTURE,
    }
    if file.media_type == _PICTURE:
        return [{**pictures, "includes": file.pattern}]
    if file.media_type == _TAR:
        return [whole, {**pictures, "containedIn": {"@id": "images"}, "includes": "*.png"}]
    return [whole]


def _record_sets(card: Mapping[str, Any], file: DataFile) -> list[Json]:
    names = card["images"]["class_names"]
    classes = {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "description": "Names of the labels.",
        "key": {"@id": "classes/label"},
        "field": [_field("classes/label", "sc:Integer"), _field("classes/name", "sc:Text")],
        "data": [{"classes/label": label, "classes/name": class_name} for label, class_name in enumerate(names)],
    }
    records = _records(file)
    return [classes] if records is None else [classes, records]


def _records(file: DataFile) -> Json | None:
    """Describe images and labels where Croissant has words for it: columns of a table, or files in an archive."""
    if file.media_type == _PARQUET:
        image = {"fileObject": {"@id": "images"}, "extract": {"column": "image"}, "transform": {"jsonPath": "bytes"}}
        label = {"fileObject": {"@id": "images"}, "extract": {"column": "label"}}
        references = {"references": {"field": {"@id": "classes/label"}}}
        fields = [
            _field("records/image", "sc:ImageObject", source=image),
            _field("records/label", "sc:Integer", source=label, **references),
        ]
    elif file.media_type in (_TAR, _PICTURE):
        content = {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": "content"}}
        named = {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": "fullpath"}}
        fields = [
            _field("records/image", "sc:ImageObject", source=content),
            _field("records/name", "sc:Text", source=named),
        ]
    else:
        return None
    record_set: Json = {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
    return {**record_set, "description": "One image per record."}


def _field(identifier: str, kind: str, **more: Any) -> Json:
    name = identifier.rpartition("/")[2]
    return {"@type": "cr:Field", "@id": identifier, "name": name, "description": name, "dataType": kind, **more}
