"""`datalens demo`: the whole way on real images that come with scikit-learn."""

from pathlib import Path
from typing import Annotated, Final

import typer

from datalens_service.base.parsing import decimal_text
from datalens_service.cli import options, output
from datalens_service.cli.options import parse_number
from datalens_service.cli.specs import SpecOptions

PRIVATE_READS = ("reading the upload",)

_EPSILON: Final = 5.0
_PRESET: Final = "balanced"

# Chosen on these very images, which are public: what the demo reaches shows how it works, not how well.
_SETTINGS: Final = [
    "warm_start.subspace_dimensions=64",
    "warm_start.subspace_share=0.08",
    "warm_start.means_share=0.3",
    "warm_start.clip_norm=0.5",
    "warm_start.residual_norm=0.5",
]


def demo(
    epsilon: Annotated[
        float, typer.Option("--epsilon", parser=parse_number, help="ε to spend on the digits.")
    ] = _EPSILON,
    out: Annotated[Path, typer.Option("--out", help="Folder for everything.", file_okay=False)] = Path("demo-output"),
    evaluation: options.Evaluation = True,
    as_json: options.AsJson = False,
) -> None:
    """Train on scikit-learn's handwritten digits under one privacy budget and say where everything is.

    DataLens, started from private moments and refined by votes of small teachers; one to two minutes on two cores.
    """
    from datalens_service.cli import review
    from datalens_service.cli.commands.train import train_upload
    from datalens_service.data.digits import digits

    upload = digits()
    output.say(f"{upload.schema.num_units:,} handwritten digits of 8×8 pixels, ε = {decimal_text(epsilon)}")
    spec_options = SpecOptions(epsilon=epsilon, preset=_PRESET, settings=_SETTINGS, evaluation=evaluation)
    # Its class names are ten digits, which are public.
    train_upload(upload, "digits", spec_options, out, as_json=as_json, confirm=review.skip)
