"""`datalens individual-epsilon`: what a job happened to cost one record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.cli import names, options, output
from datalens_service.cli.numbers import build_integer_parser
from datalens_service.cli.service import connect

if TYPE_CHECKING:
    from datalens_service.programs.individual_epsilon import RealisedEpsilon

_FILE = ".safetensors"


def individual_epsilon(
    job: Annotated[str, typer.Argument(help="An iterates.safetensors, or a job on a service, by id or name.")],
    image: Annotated[
        Path,
        typer.Argument(
            help="One image: PNG or JPEG, or an NPZ with one array named images.", exists=True, dir_okay=False
        ),
    ],
    label: Annotated[int, typer.Option("--label", parser=build_integer_parser(0), help="Index of its class.")],
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Say what a job happened to cost one record, from its released iterates and this record alone.

    With a file, nothing leaves this machine. With a job of a service, the image goes there and is not kept. The
    answer is a realised individual ε; the guarantee is the ε of the job.
    """
    answer = _ask(job, image, label, url, api_key) if _is_job(job) else _compute(Path(job), image, label)
    facts = {
        "realised individual ε": answer.epsilon,
        "ε of the job": answer.epsilon_of_job,
        "δ": answer.delta,
        "iterates": answer.steps,
    }
    output.show(answer, output.format_facts(facts), as_json=as_json)


def _is_job(job: str) -> bool:
    return Path(job).suffix != _FILE and not Path(job).exists()


def _ask(job_id: str, image: Path, label: int, url: str, api_key: str) -> RealisedEpsilon:
    from datalens_service.programs.individual_epsilon import RealisedEpsilon

    with connect(url, api_key) as client:
        return RealisedEpsilon.model_validate(
            client.individual_epsilon(names.job_id(client, job_id), image, label).model_dump()
        )


def _compute(iterates: Path, image: Path, label: int) -> RealisedEpsilon:
    from datalens_service.data.readers.unlabelled import read_unlabelled
    from datalens_service.data.untrusted.limits import DEFAULT_LIMITS
    from datalens_service.programs.individual_epsilon import Descent

    # What the reader of iterates says of a file that cannot be opened does not name it.
    iterates.open("rb").close()
    pixels, _ = read_unlabelled(image, DEFAULT_LIMITS, 1)
    return Descent(iterates).epsilon_of(pixels, label)
