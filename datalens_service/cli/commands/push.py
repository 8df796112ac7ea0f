"""`datalens jobs push`: a release on Hugging Face's Hub, or in a folder laid out like one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from datalens_service.cli import names, options, output
from datalens_service.cli.commands.downloads import FileFormat, image_format
from datalens_service.cli.numbers import build_integer_parser
from datalens_service.cli.service import connect
from datalens_service.errors import InvalidInput


def push(
    job_id: options.JobId,
    repository: Annotated[
        str | None, typer.Option("--repo", metavar="OWNER/NAME", help="Data set repository; created if needed.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Write the same files into this new folder instead.", file_okay=False),
    ] = None,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="Of the images; the Hub shows parquet.")
    ] = FileFormat.PARQUET,
    count: Annotated[
        int | None, typer.Option("--n", parser=build_integer_parser(1), help="How many; left out, what is packed.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Public name of the data set.")] = None,
    licence: Annotated[str, typer.Option("--license", help="SPDX id, for example CC-BY-4.0.")] = "other",
    public: Annotated[bool, typer.Option("--public", help="Make a new repository open to everybody.")] = False,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Publish synthetic images with card, licence, checksums and proof, after verifying them.

    The token for the Hub is that of `hf auth login` or HF_TOKEN. --folder needs neither token nor network.
    """
    from datalens_service.integrations.hub import ReleaseOptions, push_to_hub, save_release

    if (repository is None) == (folder is None):
        raise InvalidInput("Name either --repo or --folder.")
    release = ReleaseOptions(image_format(file_format), count, title, licence)
    with connect(url, api_key) as client:
        job_id = names.job_id(client, job_id)
        if folder is not None:
            place = str(save_release(client, job_id, folder, release))
        else:
            place = push_to_hub(client, job_id, repository or "", release, public=public)
    output.show({"published": place, "audience": "anyone"}, place, as_json=as_json)
