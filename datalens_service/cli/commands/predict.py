"""`datalens predict`: classes of images, by a classifier on this machine or on a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.base.errors import InvalidInput
from datalens_service.cli import output
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.service import SERVICE, Service, find_job

if TYPE_CHECKING:
    from datalens_service.client import IndividualEpsilon, PredictionsInfo
    from datalens_service.subprocesses.individual_epsilon import RealisedEpsilon

_LARGEST = 100_000
_PER_JOB, _PER_CLASSIFIER = "job_", "clf_"
_FILE = ".safetensors"


def predict(
    model: Annotated[
        str, typer.Argument(help="A classifier.safetensors, or a job (id or name) or classifier (id) on a service.")
    ],
    images: Annotated[
        Path,
        typer.Argument(
            help="A PNG or JPEG file, a folder, zip or tar of them, or an NPZ with one array named images.", exists=True
        ),
    ],
    service: Service = SERVICE,
) -> None:
    """Predict the classes of images. Costs no ε, however often: a released classifier is not private.

    With a file, nothing leaves this machine. With an id or a name, the images go to the service, which keeps none.
    """
    path = Path(model)
    if not path.exists() and path.suffix != _FILE:
        answer = _predict_remotely(model, images, service)
    else:
        answer = _predict_locally(path, images)
    rows = [
        (item.file or str(number), item.class_name, f"{100 * max(item.probabilities):.1f} %")
        for number, item in enumerate(answer.items)
    ]
    service.show(answer, output.format_table(("image", "class", "probability"), rows))


def _predict_remotely(model: str, images: Path, service: Service) -> PredictionsInfo:
    if images.is_dir():
        raise InvalidInput("Zip the folder to send it to a service.")
    with service.connect() as client:
        if not model.startswith(_PER_CLASSIFIER):
            model = f"{_PER_CLASSIFIER}{find_job(client, model).removeprefix(_PER_JOB)}"
        return client.predict(model, images)


def _predict_locally(path: Path, images: Path) -> PredictionsInfo:
    from datalens_service.client import PredictionInfo, PredictionsInfo
    from datalens_service.data.intake.readers.unlabelled import read_folder, read_unlabelled
    from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS
    from datalens_service.subprocesses.child_program import say_what_is_missing
    from datalens_service.subprocesses.prediction import load_classifier

    # What the reader of classifiers says of a file that cannot be opened does not name it.
    path.open("rb").close()
    classifier = load_classifier(path)
    read = read_folder if images.is_dir() else read_unlabelled
    pixels, names = read(images, DEFAULT_LIMITS, _LARGEST)
    with say_what_is_missing("Predicting"):
        probabilities, classes = classifier.predict(pixels), classifier.schema.class_names
    items = tuple(
        PredictionInfo(file=file, class_name=classes[int(row.argmax())], probabilities=tuple(map(float, row)))
        for file, row in zip(names or (None,) * len(pixels), probabilities, strict=True)
    )
    return PredictionsInfo(class_names=classes, items=items)


def individual_epsilon(
    job: Annotated[str, typer.Argument(help="An iterates.safetensors, or a job on a service, by id or name.")],
    image: Annotated[
        Path,
        typer.Argument(
            help="One image: PNG or JPEG, or an NPZ with one array named images.", exists=True, dir_okay=False
        ),
    ],
    label: Annotated[int, typer.Option("--label", parser=build_integer_parser(0), help="Index of its class.")],
    service: Service = SERVICE,
) -> None:
    """Say what a job happened to cost one record, from its released iterates and this record alone.

    With a file, nothing leaves this machine. With a job of a service, the image goes there and is not kept. The
    answer is a realised individual ε; the guarantee is the ε of the job.
    """
    is_job = Path(job).suffix != _FILE and not Path(job).exists()
    answer: IndividualEpsilon | RealisedEpsilon = (
        _ask(job, image, label, service) if is_job else _compute(Path(job), image, label)
    )
    facts = {
        "realised individual ε": answer.epsilon,
        "ε of the job": answer.epsilon_of_job,
        "δ": answer.delta,
        "iterates": answer.steps,
    }
    service.show(answer, output.format_facts(facts))


def _ask(job_id: str, image: Path, label: int, service: Service) -> IndividualEpsilon:
    with service.connect() as client:
        return client.individual_epsilon(find_job(client, job_id), image, label)


def _compute(iterates: Path, image: Path, label: int) -> RealisedEpsilon:
    from datalens_service.data.intake.readers.unlabelled import read_unlabelled
    from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS
    from datalens_service.subprocesses.individual_epsilon import ReleasedDescent

    # What the reader of iterates says of a file that cannot be opened does not name it.
    iterates.open("rb").close()
    pixels, _ = read_unlabelled(image, DEFAULT_LIMITS, 1)
    return ReleasedDescent(iterates).realise_epsilon(pixels, label)
