"""`datalens encoders`: public encoders from files of weights that others trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from datalens_service.cli import options, output
from datalens_service.cli.new_file import new_file
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import build_integer_parser

app = Commands(help="Public encoders from weights that others trained.", no_args_is_help=True)

_LEAST_SIDE, _LARGEST_SIDE = 32, 512


@app.command()
def make(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What cards call the encoder.")],
    weights: Annotated[
        Path,
        typer.Option(
            "--weights",
            help="File of weights: safetensors, or a state_dict that torch saved. ResNet, ConvNeXt and ViT of "
            "torchvision, DINOv2 and EfficientNet-Lite are recognised. Nothing in the file is run.",
            exists=True,
            dir_okay=False,
        ),
    ],
    license: Annotated[
        str, typer.Option("--license", help="Licence of the weights, in words; cards state it. Example: Apache-2.0")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="ONNX file to write; default: NAME.onnx.", dir_okay=False)
    ] = None,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            parser=build_integer_parser(_LEAST_SIDE, _LARGEST_SIDE),
            help="Pixels of a side that images are brought to; half of it is about four times as fast.",
        ),
    ] = 224,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Make a public encoder from local weights: one ONNX file, which --set encoder=FILE.onnx names.

    The file is tried as an upload would try it. Size and normalisation of images are a part of it. Nothing is
    downloaded.
    """
    from datalens_service.models.encoders.making import make_encoder
    from datalens_service.services import encoders

    file = Path(f"{name}.onnx") if out is None else out
    with new_file(file, force=force) as path:
        made = make_encoder(weights, name, license, size)
        path.write_bytes(made.content)
        encoder = encoders.read(path)
    answer = {"file": str(file), "network": made.family, "size": size, "encoder": encoder.model_dump(mode="json")}
    facts = {
        "written": file,
        "network": made.family,
        "size": f"{size}×{size}",
        "features": f"{encoder.features:,}",
        "SHA-256": encoder.sha256,
        "weights": made.label.weights_sha256,
        "licence": license,
        "use": f"--set encoder={file}",
    }
    output.show(answer, output.format_facts(facts), as_json=as_json)
