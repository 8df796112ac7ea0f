"""Shared parts of all downloads of a job: its state, formats, licences, and answers with a stored file."""

from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request, Response

from datalens_service.api.deps import ObjectId, Services, ServicesDep
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.http.strictness import DIGITS
from datalens_service.api.http.threads import run_in_thread
from datalens_service.api.openapi.document import file_content
from datalens_service.base.errors import InvalidInput, StateConflict
from datalens_service.base.fields import one_of
from datalens_service.data.dataset import MAXIMUM_CLASSES
from datalens_service.data.export import WRITERS
from datalens_service.data.export.licence import LICENCES
from datalens_service.services.synthetic_files import MAXIMUM_IMAGES, Selection, SyntheticFile
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import CLASSIFIER, GENERATOR

IMAGES: Final = file_content(
    "A file that says it is synthetic and carries the card.",
    *dict.fromkeys(writer.media_type for writer in WRITERS.values()),
)
"""Answers with drawn or packed images."""


async def released(job_id: ObjectId, services: ServicesDep) -> Job:
    """The job, if it has something to download: its evaluation may still go on.

    Raises:
        NotFound: No such job.
        StateConflict: Its images are not ready.
    """
    job = await run_in_thread(jobs.get, services.database, job_id)
    if job.released_at is None:
        raise StateConflict(f"There is nothing to download: the job is {job.state} and its images are not ready.")
    return job


async def drawing(job: Annotated[Job, Depends(released)]) -> Job:
    return _making(job, GENERATOR)


async def labelling(job: Annotated[Job, Depends(released)]) -> Job:
    return _making(job, CLASSIFIER)


def _making(job: Job, kind: str) -> Job:
    if job.result != kind:
        raise StateConflict(
            f"The job made a {job.result}: there is no {kind} to download. See ⟦job_files⟧ for what there is."
        )
    return job


FileName = Annotated[str, Path(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Of a file.")]
Released = Annotated[Job, Depends(released)]
Drawing = Annotated[Job, Depends(drawing)]
Labelling = Annotated[Job, Depends(labelling)]
LicenceId = Annotated[str, one_of(LICENCES), Query(json_schema_extra={"enum": list(LICENCES)})]
FormatName = Annotated[
    str, one_of(WRITERS), Query(json_schema_extra={"enum": list(WRITERS)}, description="Format of the file.")
]


async def select_images(
    format: FormatName = "parquet",
    synthetic_images: Annotated[
        int | None, Query(ge=1, le=MAXIMUM_IMAGES, description="Images in all; left out, what was packed."), DIGITS
    ] = None,
    per_class: Annotated[
        int | None, Query(ge=1, le=MAXIMUM_IMAGES, description="Images of each class, instead."), DIGITS
    ] = None,
    classes: Annotated[
        list[str] | None,
        Query(
            max_length=MAXIMUM_CLASSES,
            description="Names of classes, or their numbers in label order; left out, all. Those named take turns.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Query(
            ge=0,
            lt=2**63,
            description="The same seed draws the same images; left out, they come from what a job packed, as far as "
            "that goes.",
        ),
        DIGITS,
    ] = None,
    n: Annotated[int | None, Query(ge=1, le=MAXIMUM_IMAGES, include_in_schema=False), DIGITS] = None,
) -> Selection:
    """Return which images are asked for; clients of 1.0 say `n`."""
    if synthetic_images is not None and n is not None:
        raise InvalidInput("n is the earlier name of ⟦download.synthetic_images⟧: send one of them.")
    count = n if synthetic_images is None else synthetic_images
    return Selection(format, count, per_class, tuple(classes or ()), seed)


SelectionDep = Annotated[Selection, Depends(select_images)]


def images_file(request: Request, made: SyntheticFile, identifier: str, format: str) -> Response:
    """Answer with images that were made of the model with this id."""
    writer = WRITERS[format]
    name = f"{identifier}-synthetic.{writer.suffix}"
    return file_response(request, made.path, made.sha256, media_type=writer.media_type, name=name)


def stored_file(
    request: Request, services: Services, job: Job, name: str, *, inline: bool = False, private: bool = False
) -> Response:
    """Answer with a stored file of a job.

    Args:
        private: True if the file may be one for the owner alone; the operation has checked the key.

    Raises:
        NotFound: There is no such file, or it is not for everybody and `private` is not set.
    """
    artifact = (services.artifacts.get if private else services.artifacts.releasable)(job.id, name)
    return file_response(
        request, artifact.path, artifact.sha256, media_type=artifact.media_type, name=f"{job.id}-{name}", inline=inline
    )
