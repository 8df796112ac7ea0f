"""The pages of a bundle that people read: the Hub's dataset card and the datasheet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from datalens_service.data.export.licence import LICENCES, OF_PUBLIC_IMAGES, describe_public_images
from datalens_service.data.export.png import MOST_ROWS
from datalens_service.data.export.writer import is_verbatim
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.privacy.guarantee import card_guarantee

_ACCURACIES: Final = {
    "classifier_accuracy": "The classifier labels {:.1f} % of the real test images correctly.",
    "accuracy": "A classifier that has seen only {images} images labels {:.1f} % of the real test images correctly.",
    "classifier_accuracy_holdout": "The classifier labels about {:.1f} % of real images that were set aside correctly.",
    "accuracy_holdout": "A classifier that has seen only {images} images labels about {:.1f} % of real images that "
    "were set aside correctly.",
}
SAMPLES: Final = "samples.png"
USES: Final = (
    "How useful they are decides whether they serve to train or to look at; they always serve to test software. Not "
    "for conclusions about single people, about rare cases, or about how often something occurs: class sizes were "
    "chosen, not measured."
)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@dataclass(frozen=True)
class DrawnImages:
    """Images of an archive.

    Attributes:
        classes: Names of the selected classes; empty for all.
    """

    count: int
    classes: tuple[str, ...] = ()


def description(card: Mapping[str, Any], drawn: DrawnImages) -> str:
    """Describe the data set in one paragraph."""
    images, count = card["images"], drawn.count
    if is_verbatim(card):
        return (
            f"{count:,} draws with replacement from {card['public_images']['images']:,} public images of "
            f"{images['width']} by {images['height']} pixels, as they were uploaded or cropped and mirrored, "
            f"with labels of {len(images['class_names'])} classes that were learned from private images under "
            f"differential privacy. {card_guarantee(card['privacy'])}"
        )
    return (
        f"{count:,} synthetic images of {images['width']} by {images['height']} pixels in {len(images['class_names'])} "
        f"classes, drawn from a generator that was trained on private images under differential privacy. None of them "
        f"is a private image. {card_guarantee(card['privacy'])}"
    )


def dataset_card(
    card: Mapping[str, Any], drawn: DrawnImages, *, name: str, spdx: str, pattern: str, pictured: bool = False
) -> str:
    """Return README.md with the YAML that Hugging Face's Hub and `datasets` read.

    Args:
        pattern: Pattern of the files in the bundle that hold the images.
        pictured: True if a grid of samples lies beside it.
    """
    # JSON is YAML, so nothing in a name can break out of its quotes.
    lines = [
        "---",
        f"license: {LICENCES['other' if is_verbatim(card) else spdx].hub_id}",
        f"pretty_name: {json.dumps(name, ensure_ascii=False)}",
        "task_categories: [image-classification]",
        f"tags: [{'public-images' if is_verbatim(card) else 'synthetic'}, differential-privacy]",
        f"size_categories: [{json.dumps(next((name for limit, name in _SIZES if drawn.count < limit), '1M<n<10M'))}]",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f"    path: {json.dumps(pattern)}",
        "---",
        "",
        f"# {_plain(name)}",
        "",
        description(card, drawn),
        "",
        "## Usefulness",
        "",
        usefulness(card),
        "",
        *(_picture(card) if pictured else ()),
        *guarantee(card),
        "",
        "## Files",
        "",
        "`classes.json` names the labels, `privacy.json` is the proof of what the images cost (`datalens verify "
        "privacy.json` recomputes ε from it), `report.html` has cost and usefulness, `croissant.json` is for programs, "
        "`datasheet.md` answers the usual questions, `SHA256SUMS` is checked with `sha256sum -c SHA256SUMS`.",
        "",
    ]
    return "\n".join(lines)


def _picture(card: Mapping[str, Any]) -> list[str]:
    """Show the grid of samples that lies beside the page."""
    names = ", ".join(_plain(name) for name in card["images"]["class_names"][:MOST_ROWS])
    return [f"![Samples, one row for each class]({SAMPLES})", "", f"One row for each class: {names}.", ""]


def datasheet(card: Mapping[str, Any], drawn: DrawnImages, *, name: str, spdx: str, pictured: bool = False) -> str:
    """Return the headings of "Datasheets for Datasets", with the answers that the card has."""
    public = is_verbatim(card)
    recognised = " People on the public images can be recognised." if public else ""
    licence = "Licence of the labels; images keep theirs" if public else "Licence"
    sections = {
        "Motivation": "Made to be used where the private images themselves may not be shared.",
        "Composition": f"{description(card, drawn)} Every image has a label.{_turns(drawn)} All "
        f"are one split, train. There are no names of people.{recognised}",
        "Collection process": "Nothing was collected for this data set. The private images came with labels from "
        "whoever holds them.",
        "Preprocessing, cleaning, labelling": f"{_preprocessing(card)} {_labels(card)}",
        "Uses": f"{usefulness(card)} {USES}",
        "Distribution": f"{licence}: {LICENCES[spdx].name}. Images and metadata are marked in machine-readable form as "
        "what they are; leave the marking in.",
        "Maintenance": "The holder of the private records can draw more from the same released model at no further "
        "cost in privacy.",
    }
    parts = [f"# Datasheet: {_plain(name)}", ""]
    for heading, text in sections.items():
        parts += [f"## {heading}", "", text, ""]
    return "\n".join([*parts, *(_picture(card) if pictured else ()), *guarantee(card), ""])


def _turns(drawn: DrawnImages) -> str:
    if not drawn.classes:
        return ""
    return f" Only these classes were drawn, in turn: {', '.join(map(_plain, drawn.classes))}."


def usefulness(card: Mapping[str, Any]) -> str:
    """Describe the looks of the images, and how well they teach, as far as anybody may know it."""
    images = "released" if is_verbatim(card) else "synthetic"
    told = tell_accuracy({one["name"]: one["value"] for one in card["measures"]}, images)
    return " ".join(filter(None, (card.get("appearance", ""), told)))


def tell_accuracy(values: Mapping[str, float], images: str) -> str:
    """State the first accuracy among figures that anybody may see, by their names, in a sentence."""
    told = [sentence.format(values[name], images=images) for name, sentence in _ACCURACIES.items() if name in values]
    return told[0] if told else "No accuracy is stated: measure one on images of your own before you rely on this."


def guarantee(card: Mapping[str, Any]) -> list[str]:
    """Return lines of Markdown: the guarantee, the program, and what is not covered."""
    privacy, product = card["privacy"], card["product"]
    return [
        "## Privacy",
        "",
        f"- {card_guarantee(privacy)} ε is rounded up.",
        f"- Made by {product['name']} {product['version']} with the method {card['method']}{_plugin(card)}, on "
        f"{card['date']}.",
        *_public(card),
        *([f"- Questions: {_plain(card['contact'])}"] if card.get("contact") else []),
        *[f"- Not covered: {sentence}" for sentence in privacy["not_covered"]],
    ]


def _public(card: Mapping[str, Any]) -> list[str]:
    """Return a line about public images that were used, if any."""
    source = card.get("public_images")
    if source is None:
        return []
    name = f" of “{source['name']}”" if source["name"] else ""
    said = _plain(describe_public_images(f"{source['images']:,} images{name}", source.get("license", "")))
    if is_verbatim(card):
        used = "The images are public ones, unchanged or cropped and mirrored, and their own licence holds. They are of"
    else:
        used = "Public images were used beside the private ones"
    return [f"- {used}: {said}, SHA-256 {source['sha256']}. {OF_PUBLIC_IMAGES}"]


def _labels(card: Mapping[str, Any]) -> str:
    """Explain the source of the labels."""
    if is_verbatim(card):
        return (
            "Labels come from noisy sums over private images. For a class, images are drawn in proportion to how well "
            "they stand for it, so one may come under several labels; soft labels lie beside."
        )
    return "A label is what the generator was asked for."


def _preprocessing(card: Mapping[str, Any]) -> str:
    """Describe how the private images were prepared, and how much of them the method saw."""
    settings = card["images"].get("preparation")
    prepared = PrepareSettings.model_validate(settings).sentence() if settings else ""
    sentences = (prepared, "Images have the size and the channels of the private ones, 8 bits each.")
    return " ".join(filter(None, (*sentences, card.get("working_size"))))


def _plugin(card: Mapping[str, Any]) -> str:
    """Name the package of a method that is not the product's own."""
    plugin = card.get("plugin")
    return "" if plugin is None else f", a plug-in of {plugin['distribution']} {plugin['version']}"


def _plain(name: str) -> str:
    """Put a name on one line, and escape what Markdown would take for something else."""
    line = " ".join(name.split())
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>()#+!|" else character for character in line)
