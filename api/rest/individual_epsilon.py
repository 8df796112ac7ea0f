"""Individual ε of one record, for whoever holds the record."""

from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Response

from api.deps import Services, ServicesDep
from api.openapi import examples
from api.openapi.document import form_body, ok, problems
from api.problems.handlers import PRIVATE
from api.released_jobs import Labelling
from api.schemas.classifiers import IndividualEpsilonForm, IndividualEpsilonRequest, read_pixels
from api.uploads.receiver import FILE_FIELD, RecordUploadDep
from datalens_service.errors import NotFound, StateConflict
from datalens_service.methods.descent.iterates import ITERATES_FILE
from datalens_service.programs.individual_epsilon import RealisedEpsilon
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs.jobs import Job

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["classifiers"])
_BODY: Final[dict[str, Any]] = form_body(
    IndividualEpsilonForm,
    FILE_FIELD,
    "One image: PNG or JPEG, a zip or tar of it, or an NPZ with one array named images; contents decide the format.",
    examples.RECORD_FORM,
    IndividualEpsilonRequest,
    examples.RECORD_REQUEST,
)


@router.post(
    "/individual-epsilon",
    operation_id="createIndividualEpsilon",
    summary="Say what a job cost one record",
    openapi_extra=_BODY,
    responses={
        **ok(200, "Realised individual ε of the record."),
        **problems(
            "state-conflict",
            "invalid-input",
            "dataset-invalid",
            "payload-too-large",
            "unsupported-media-type",
            "worker-unavailable",
            "insufficient-storage",
        ),
    },
)
def create_individual_epsilon(
    job: Labelling, upload: RecordUploadDep, services: ServicesDep, response: Response
) -> RealisedEpsilon:
    """From the released iterates of the job and the sent image alone: the records of the data set are not read.

    The answer is of the same kind whether or not the record is one of them. It is neither kept nor logged. For jobs of
    `dp_sgd` with `accounting=per_instance`, on data sets whose units are single records.
    """
    response.headers.update(PRIVATE)
    schema = datasets.get(services.database, job.dataset_id).schema
    iterates = _iterates(services, job)
    if isinstance(upload, IndividualEpsilonRequest):
        return services.predictions.realise_epsilon(iterates, schema, read_pixels([upload.image]), upload.label)
    return services.predictions.realise_epsilon(iterates, schema, upload.path, upload.form.label)


def _iterates(services: Services, job: Job) -> Path:
    try:
        return services.artifacts.releasable(job.id, ITERATES_FILE).path
    except NotFound:
        raise StateConflict(
            "The job kept no iterates: train with ⟦spec.method⟧ dp_sgd and ⟦method.accounting⟧ per_instance."
        ) from None
