"""The README.md of a released model, with the YAML that model hubs read: a model index of measured figures."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from datalens_service.base.signatures import SigningKey
from datalens_service.data.export.licence import licence_text
from datalens_service.data.export.pages import guarantee, usefulness
from datalens_service.data.export.release_archive import write_signed
from datalens_service.privacy.guarantee import card_guarantee

_TASKS: Final = {"classifier": "image-classification"}
_LIBRARY: Final = "onnx"


def model_card(card: Mapping[str, Any], result: str, files: Sequence[str]) -> str:
    images, privacy = card["images"], card["privacy"]
    lines = [
        "---",
        *_front_matter(card, result, files),
        "---",
        "",
        f"# A private {result}",
        "",
        f"A {result} for images of {images['width']} by {images['height']} pixels and {images['channels']} "
        f"channel{'' if images['channels'] == 1 else 's'} in {len(images['class_names'])} classes. It learned from "
        f"the private images of {privacy['num_units']:,} {privacy['unit']}s under differential privacy. "
        f"{card_guarantee(privacy)}",
        "",
        "## Usefulness",
        "",
        usefulness(card),
        "",
        *guarantee(card),
        "",
        "## Files",
        "",
        f"{', '.join(f'`{name}`' for name in files)}. `privacy.json` is the proof of what it cost (`datalens verify "
        "privacy.json` recomputes ε from it), `card.json` says the same as this page for programs.",
        "",
        f"Classes, in the order of the outputs: `{json.dumps(images['class_names'], ensure_ascii=False)}`",
        "",
    ]
    return "\n".join(lines)


def _front_matter(card: Mapping[str, Any], result: str, files: Sequence[str]) -> list[str]:
    """Return YAML written as JSON, which YAML includes, so that nothing in a name can break out of its quotes."""
    lines = ["tags: [differential-privacy]"]
    if any(name.endswith(f".{_LIBRARY}") for name in files):
        lines.append(f"library_name: {_LIBRARY}")
    if result in _TASKS:
        lines += [f"pipeline_tag: {_TASKS[result]}", f"model-index: {json.dumps([_index(card, _TASKS[result])])}"]
    return lines


def _index(card: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return one model with the figures that anybody may see; without any, its guarantee alone."""
    privacy = card["privacy"]
    metrics: list[dict[str, Any]] = [
        {"type": "accuracy", "name": measure["name"], "value": measure["value"] / 100}
        for measure in card["measures"]
        if measure["unit"] == "percent"
    ]
    metrics += [{"type": name, "name": name, "value": privacy[name]} for name in ("epsilon", "delta")]
    dataset = {"type": "private", "name": "private images of their owner"}
    results = [{"task": {"type": task}, "dataset": dataset, "metrics": metrics}]
    return {"name": f"{card['method']} classifier", "results": results}


def write_model_archive(path: Path, files: Mapping[str, bytes], spdx: str, key: SigningKey) -> None:
    """Write a model ready to be published as one zip, with checksums and a signature over them.

    Equal input gives equal bytes.

    Args:
        files: Public files by name, `privacy.json`, the proof of the job, among them.
    """
    with zipfile.ZipFile(path, "w") as archive:
        write_signed(archive, {**files, "LICENSE": licence_text(spdx).encode()}, {}, key)
