"""`datalens demo`: the whole way on real images that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from datalens_service.cli import options, output
from datalens_service.cli.specs import SpecOptions

_EPSILON: Final = 2.0
_PRESET: Final = "balanced"


def demo(
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε to spend on the 1,437 digits.")] = _EPSILON,
    out: Annotated[Path, typer.Option("--out", help="Folder for everything.", file_okay=False)] = Path("demo-output"),
    as_json: options.AsJson = False,
) -> None:
    """Train on scikit-learn's handwritten digits under one privacy budget and say where everything is.

    DataLens, started from private moments and refined by votes of small teachers; one to two minutes on two cores.
    """
    from datalens_service.cli.train import train_upload
    from datalens_service.data.digits import digits

    upload = digits()
    output.say(f"{upload.schema.num_units:,} handwritten digits of 8×8 pixels, ε = {epsilon:g}")
    train_upload(upload, "digits", SpecOptions(epsilon=epsilon, preset=_PRESET), out, as_json=as_json)
