"""Classifiers: list them, read their cards, predict, and say what one cost a record. Their files are those of jobs."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Response

from datalens_service.api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import form_body, ok
from datalens_service.api.problems.handlers import PRIVATE
from datalens_service.api.released_jobs import Labelling
from datalens_service.api.schemas.classifiers import (
    ClassifierRead,
    IndividualEpsilonForm,
    IndividualEpsilonRequest,
    PredictionForm,
    PredictionList,
    PredictionRequest,
    read_pixels,
)
from datalens_service.api.schemas.common import Page
from datalens_service.api.uploads.receiver import FILE_FIELD, ImagesUploadDep, RecordUploadDep
from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.data.dataset import Images
from datalens_service.methods.descent.iterates import ITERATES_FILE
from datalens_service.services.synthetic_files import CARD
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import CLASSIFIER
from datalens_service.subprocesses.individual_epsilon import RealisedEpsilon

CLASSIFIER_FILE: Final = "classifier.safetensors"

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["classifiers"])
_BODY: Final[dict[str, Any]] = form_body(
    PredictionForm,
    FILE_FIELD,
    "A PNG or JPEG file, a zip or tar of them, or an NPZ with one array named images; contents decide the format.",
    examples.PREDICTION_FORM,
)
_RECORD: Final[dict[str, Any]] = form_body(
    IndividualEpsilonForm,
    FILE_FIELD,
    "One image: PNG or JPEG, a zip or tar of it, or an NPZ with one array named images; contents decide the format.",
    examples.RECORD_FORM,
)
_SENT: Final = (
    "invalid-input",
    "dataset-invalid",
    "payload-too-large",
    "unsupported-media-type",
    "worker-unavailable",
    "insufficient-storage",
)
_PREDICTED: Final = ok(200, "A probability for each class and image.", *_SENT)
_REALISED: Final = ok(200, "Realised individual ε of the record.", "state-conflict", *_SENT)


@router.get("/classifiers", summary="List classifiers, newest first", responses=ok(200, "A page of the list."))
def list_classifiers(
    services: ServicesDep, key: Caller, limit: Limit = 20, after: After = None
) -> Page[ClassifierRead]:
    """The list has classifiers that jobs made; cards are left out."""
    page = released_models.list_models(services.database, key.tenant_id, kind=CLASSIFIER, limit=limit, cursor=after)
    return Page.build(page, (ClassifierRead.from_model(item, None) for item in page.items))


@router.get(
    "/classifiers/{classifier_id}", summary="Read a classifier and its card", responses=ok(200, "The classifier.")
)
def get_classifier(classifier_id: ObjectId, services: ServicesDep) -> ClassifierRead:
    """Nothing in it is private; accuracy on private images is in the report of the job."""
    model = released_models.get(services.database, classifier_id, CLASSIFIER)
    card = services.artifacts.releasable(model.job_id or "", CARD).path.read_text()
    return ClassifierRead.from_model(model, json.loads(card))


@router.post(
    "/classifiers/{classifier_id}/predictions",
    summary="Predict the classes of images",
    openapi_extra=_BODY,
    responses=_PREDICTED,
)
def create_predictions(
    classifier_id: ObjectId, upload: ImagesUploadDep, services: ServicesDep, response: Response
) -> PredictionList:
    """Costs no ε: it reads the classifier, never the records. The images are neither kept nor logged.

    At most 1,000 images and 64 MiB at once, of the size and the channels of those it learned from.
    """
    # Clients of 1.0 send numbers here.
    sent = read_pixels(upload.images) if isinstance(upload, PredictionRequest) else upload.path
    return _predict(classifier_id, sent, services, response)


@router.post(
    "/classifiers/{classifier_id}/predictions:from-pixels",
    summary="Predict the classes of images that are sent as numbers",
    responses=_PREDICTED,
)
def create_predictions_from_pixels(
    classifier_id: ObjectId,
    request: Annotated[PredictionRequest, Body(openapi_examples=examples.PREDICTION_REQUESTS)],
    services: ServicesDep,
    response: Response,
) -> PredictionList:
    """The same for JSON: at most 1,000 images and 1 MiB at once."""
    return _predict(classifier_id, read_pixels(request.images), services, response)


def _predict(classifier_id: str, sent: Path | Images, services: Services, response: Response) -> PredictionList:
    response.headers.update(PRIVATE)
    model = released_models.get(services.database, classifier_id, CLASSIFIER)
    job = jobs.get(services.database, model.job_id or "")
    schema = datasets.get(services.database, job.dataset_id).schema
    file = services.artifacts.releasable(model.job_id or "", CLASSIFIER_FILE).path
    predicted = services.predictions.predict(file, schema, sent)
    return PredictionList.from_predictions(predicted, schema.class_names)


@router.post(
    "/jobs/{job_id}/individual-epsilon",
    summary="Say what a job cost one record",
    openapi_extra=_RECORD,
    responses=_REALISED,
)
def create_individual_epsilon(
    job: Labelling, upload: RecordUploadDep, services: ServicesDep, response: Response
) -> RealisedEpsilon:
    """The released iterates of the job and the sent image are all it takes: no record of the data set is read.

    The answer is of the same kind whether or not the record is one of them. It is neither kept nor logged. For jobs of
    `dp_sgd` with `accounting=per_instance`, on data sets whose units are single records.
    """
    if isinstance(upload, IndividualEpsilonRequest):
        # Clients of 1.0 send numbers here.
        return create_individual_epsilon_from_pixels(job, upload, services, response)
    return _realise(job, upload.path, upload.form.label, services, response)


@router.post(
    "/jobs/{job_id}/individual-epsilon:from-pixels",
    summary="Say what a job cost one record that is sent as numbers",
    responses=_REALISED,
)
def create_individual_epsilon_from_pixels(
    job: Labelling,
    request: Annotated[IndividualEpsilonRequest, Body(openapi_examples=examples.RECORD_REQUESTS)],
    services: ServicesDep,
    response: Response,
) -> RealisedEpsilon:
    """The same for JSON."""
    return _realise(job, read_pixels([request.image]), request.label, services, response)


def _realise(job: Job, sent: Path | Images, label: int, services: Services, response: Response) -> RealisedEpsilon:
    response.headers.update(PRIVATE)
    schema = datasets.get(services.database, job.dataset_id).schema
    return services.predictions.realise_epsilon(_iterates(services, job), schema, sent, label)


def _iterates(services: Services, job: Job) -> Path:
    try:
        return services.artifacts.releasable(job.id, ITERATES_FILE).path
    except NotFound:
        raise StateConflict(
            "The job kept no iterates: train with ⟦spec.method⟧ dp_sgd and ⟦method.accounting⟧ per_instance."
        ) from None
