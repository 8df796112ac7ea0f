"""`datalens prepare`: images of many kinds become one NPZ that can be uploaded."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datalens_service.base.errors import InvalidDataset
from datalens_service.cli import options, output, review
from datalens_service.cli.new_file import new_file
from datalens_service.cli.options import parse_image_size
from datalens_service.cli.specs import MetadataOptions, build_choices

if TYPE_CHECKING:
    from datalens_service.data.dataset import Upload

PRIVATE_READS = ("reading the upload",)

_MEMORY_BYTES = 2**34
_SECONDS = 3600


def prepare(
    source: Annotated[
        Path, typer.Argument(metavar="IMAGES", help="Folder, zip, tar or NPZ of labelled images.", exists=True)
    ],
    out: Annotated[Path, typer.Option(help="NPZ file to write.", dir_okay=False)],
    size: Annotated[
        str,
        typer.Option(
            "--size",
            "--prepare-size",
            metavar="SIZE",
            parser=parse_image_size,
            help="Pixels of all images: 64 (square) or 96x48 (width x height).",
        ),
    ],
    fit: Annotated[
        options.FitName,
        typer.Option(
            "--fit", "--prepare-fit", help="Resize whole images, or scale them until they cover the size and crop."
        ),
    ] = "resize",
    colour: Annotated[
        options.ColourName | None,
        typer.Option("--colour", "--prepare-colour", help="Channels of all images; default: rgb if one is in colour."),
    ] = None,
    window: Annotated[
        tuple[int, int] | None,
        typer.Option(
            "--window",
            "--prepare-window",
            metavar="LOW HIGH",
            help="Values that become 0 and 255 above 8 bits; DICOM files bring their own.",
        ),
    ] = None,
    frame: Annotated[
        int, typer.Option("--frame", "--prepare-frame", min=1, help="Frame to read from files with several.")
    ] = 1,
    *,
    metadata: MetadataOptions,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Prepare images for an upload: one size, one mode, 8 bit. Says what it changed; nothing leaves this machine.

    Labels, persons and splits are read as an upload reads them: from metadata.csv, folders and DICOM files. Persons are
    in the NPZ as numbers that tell nobody's name.
    """  # fmt: skip
    from datalens_service.data.intake.sandbox import sandbox

    prepared = {"size": size, "fit": fit, "colour": colour, "window": window, "frame": frame}
    fields = vars(metadata) | {f"prepare_{name}": value for name, value in prepared.items()}
    choices = build_choices(fields).model_copy(update={"infer_units": True})
    with new_file(out, force=force) as path, tempfile.TemporaryDirectory(prefix="datalens-prepare-") as scratch:
        limits = sandbox.Confinement(memory_bytes=_MEMORY_BYTES, seconds=_SECONDS)
        try:
            decoded = sandbox.decode(source, Path(scratch), limits, choices)
        except sandbox.Refused as error:
            # Names of files go to the owner's terminal only.
            raise InvalidDataset(error.text, extra=error.validation_errors) from error
        _write(decoded.upload, path)
        facts = _describe(decoded.upload)
    review.say_notices(decoded.notices)
    answer = {"file": str(out), **facts, "notices": [notice.model_dump(mode="json") for notice in decoded.notices]}
    output.show(answer, output.format_facts({"written": out, **facts}), as_json=as_json)


def _write(upload: Upload, path: Path) -> None:
    """The records as the NPZ format has them."""
    import numpy as np

    from datalens_service.data.intake.readers.npz import GROUP_IDS, PREPARATION, UNIT, UNIT_IDS

    train, test, schema = upload.train, upload.test, upload.schema
    arrays: dict[str, Any] = {
        "train_images": train.images,
        "train_labels": train.labels,
        "class_names": np.array(schema.class_names),
    }
    if train.units is not None:
        arrays |= {UNIT_IDS: train.units, UNIT: np.array(schema.unit)}
    if train.groups is not None:
        arrays[GROUP_IDS] = train.groups
    if test is not None:
        arrays |= {"test_images": test.images, "test_labels": test.labels}
        if test.groups is not None:
            arrays[f"test_{GROUP_IDS}"] = test.groups
    if schema.preparation is not None:
        # So that whoever gets the file knows, and the service can say it in its datasheets.
        arrays[PREPARATION] = np.array(schema.preparation.model_dump_json())
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _describe(upload: Upload) -> dict[str, object]:
    train, schema = upload.train, upload.schema
    facts: dict[str, object] = {"images": len(train.labels), "classes": ", ".join(schema.class_names)}
    if train.units is not None:
        largest = max(Counter(train.units.tolist()).values())
        facts[f"{schema.unit}s"] = f"{schema.num_units}, each with at most {largest} images"
    if upload.test is not None:
        facts["test images"] = len(upload.test.labels)
    return facts
