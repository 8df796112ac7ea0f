"""Classifiers: list them, read their cards, predict, and say what one cost a record. Their files are those of jobs."""

import json
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Response

from api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from api.openapi import examples
from api.openapi.document import form_body, ok, problems
from api.problems.handlers import PRIVATE
from api.released_jobs import Labelling
from api.schemas.classifiers import (
    ClassifierRead,
    IndividualEpsilonForm,
    IndividualEpsilonRequest,
    PredictionForm,
    PredictionList,
    PredictionRequest,
    read_pixels,
)
from api.schemas.common import Page
from api.uploads.receiver import FILE_FIELD, ImagesUploadDep, RecordUploadDep
from datalens_service.errors import NotFound, StateConflict
from datalens_service.methods.descent.iterates import ITERATES_FILE
from datalens_service.programs.individual_epsilon import RealisedEpsilon
from datalens_service.services.synthetic_files import CARD
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import CLASSIFIER

CLASSIFIER_FILE: Final = "classifier.safetensors"

router = APIRouter(prefix="/v1", tags=["classifiers"])
_BODY: Final[dict[str, Any]] = form_body(
    PredictionForm,
    FILE_FIELD,
    "A PNG or JPEG file, a zip or tar of them, or an NPZ with one array named images; contents decide the format.",
    examples.PREDICTION_FORM,
    PredictionRequest,
    examples.PREDICTION_REQUEST,
)
_RECORD: Final[dict[str, Any]] = form_body(
    IndividualEpsilonForm,
    FILE_FIELD,
    "One image: PNG or JPEG, a zip or tar of it, or an NPZ with one array named images; contents decide the format.",
    examples.RECORD_FORM,
    IndividualEpsilonRequest,
    examples.RECORD_REQUEST,
)


@router.get(
    "/classifiers",
    operation_id="listClassifiers",
    summary="List classifiers, newest first",
    responses=ok(200, "A page of the list."),
)
def list_classifiers(
    services: ServicesDep, key: Caller, limit: Limit = 20, after: After = None
) -> Page[ClassifierRead]:
    """Those that jobs made; cards are left out."""
    page = released_models.list_models(services.database, key.tenant_id, kind=CLASSIFIER, limit=limit, cursor=after)
    return Page.build(page, (ClassifierRead.from_model(item, None) for item in page.items))


@router.get(
    "/classifiers/{classifier_id}",
    operation_id="getClassifier",
    summary="Read a classifier and its card",
    responses=ok(200, "The classifier."),
)
def get_classifier(classifier_id: ObjectId, services: ServicesDep) -> ClassifierRead:
    """Nothing in it is private; accuracy on private images is in the report of the job."""
    model = released_models.get(services.database, classifier_id, CLASSIFIER)
    card = services.artifacts.releasable(model.job_id or "", CARD).path.read_text()
    return ClassifierRead.from_model(model, json.loads(card))


@router.post(
    "/classifiers/{classifier_id}/predictions",
    operation_id="createPredictions",
    summary="Predict the classes of images",
    openapi_extra=_BODY,
    responses={
        **ok(200, "A probability for each class and image."),
        **problems(
            "invalid-input",
            "dataset-invalid",
            "payload-too-large",
            "unsupported-media-type",
            "worker-unavailable",
            "insufficient-storage",
        ),
    },
)
def create_predictions(
    classifier_id: ObjectId, upload: ImagesUploadDep, services: ServicesDep, response: Response
) -> PredictionList:
    """Costs no ε: it reads the classifier, never the records. The images are neither kept nor logged.

    At most 1,000 images and 64 MiB at once (1 MiB of JSON), of the size and the channels of those it learned from.
    """
    response.headers.update(PRIVATE)
    model = released_models.get(services.database, classifier_id, CLASSIFIER)
    job = jobs.get(services.database, model.job_id or "")
    schema = datasets.get(services.database, job.dataset_id).schema
    file = services.artifacts.releasable(model.job_id or "", CLASSIFIER_FILE).path
    sent = read_pixels(upload.images) if isinstance(upload, PredictionRequest) else upload.path
    predicted = services.predictions.predict(file, schema, sent)
    return PredictionList.from_predictions(predicted, schema.class_names)


@router.post(
    "/jobs/{job_id}/individual-epsilon",
    operation_id="createIndividualEpsilon",
    summary="Say what a job cost one record",
    openapi_extra=_RECORD,
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
