"""`datalens prepare`: images of many kinds become one NPZ that can be uploaded."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from datalens_service.cli import notices, options, output
from datalens_service.cli.new_file import new_file
from datalens_service.data.preparation_settings import Colour, Fit, PrepareSettings
from datalens_service.errors import InvalidDataset, InvalidInput

_MEMORY_BYTES = 2**34
_SECONDS = 3600


def prepare(
    folder: Annotated[Path, typer.Argument(help="Images in folders class/image.", exists=True)],
    out: Annotated[Path, typer.Option(help="NPZ file to write.", dir_okay=False)],
    side: Annotated[int, typer.Option(min=4, max=256, help="Height and width of all images, in pixels.")],
    fit: Annotated[Fit, typer.Option(help="Resize whole images, or scale the shorter side and crop.")] = Fit.RESIZE,
    colour: Annotated[Colour, typer.Option(help="Channels of all images.")] = Colour.GREY,
    window: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Values that become 0 and 255 above 8 bits; DICOM files bring their own."),
    ] = None,
    frame: Annotated[int, typer.Option(min=1, help="Frame that is read of files with several.")] = 1,
    patients: Annotated[
        bool,
        typer.Option(
            "--patients", help="Folders are class/patient/image; DICOM files may lie in class and name their patient."
        ),
    ] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Prepare images for an upload: one size, one mode, 8 bit. Says what it changed; nothing leaves this machine."""
    from datalens_service.data.sandbox import sandbox

    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder.")
    if window is not None and window[0] >= window[1]:
        raise InvalidInput("The first value of --window must be below its second.")
    settings = PrepareSettings(side=side, fit=fit, colour=colour, window=window, frame=frame)
    output.say(f"Every image becomes {side} by {side} pixels, {colour}; other sizes: {fit}.")
    with new_file(out, force=force) as path, tempfile.TemporaryDirectory(prefix="datalens-prepare-") as scratch:
        limits = sandbox.Confinement(memory_bytes=_MEMORY_BYTES, seconds=_SECONDS)
        try:
            prepared, summary = sandbox.prepare(folder, Path(scratch), limits, settings, patients=patients)
        except sandbox.Refused as error:
            # Names of files go to the owner's terminal only.
            raise InvalidDataset(error.detail, extra=error.validation_errors) from error
        shutil.copyfile(prepared, path)
    notices.say(summary.notices)
    facts = {"written": out, "images": summary.images}
    output.show({"file": str(out), **summary.model_dump(mode="json")}, output.format_facts(facts), as_json=as_json)
