"""Examples for the API description, computed by the same code that answers requests."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from api.openapi.example_proof import example_bundle
from api.problems.problem_types import PROBLEM_TYPES
from api.schemas.common import BudgetRead, DatasetRead, PlanRead, PrivacyRead
from api.schemas.datasets import DeletionReceipt, UploadRead, ValidationRead
from api.schemas.jobs import EventPage, EventRead, JobRead
from api.schemas.releases import SigningKeyRead
from datalens_service.data.dataset import Schema
from datalens_service.data.notices import Notice, NoticeCode
from datalens_service.data.sandbox.exchange import Counts
from datalens_service.data.untrusted.validation_errors import BadFile
from datalens_service.methods import Moments
from datalens_service.phases import Phase
from datalens_service.privacy.accounting import default_delta, limit_units
from datalens_service.proof.hash_chain import GENESIS, Entry, budget_label
from datalens_service.services.class_review import ClassReview
from datalens_service.signatures import SigningKey
from datalens_service.spec import TrainingSpec
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.upload_sessions import PartialUpload
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs.events import Event, EventType
from datalens_service.store.jobs.jobs import Job, JobState, Progress
from datalens_service.store.ledger.account_summary import AccountSummary
from datalens_service.store.tables import DEFAULT_TENANT

_DATASET_ID: Final = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
_JOB_ID: Final = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_ACCOUNT_ID: Final = "acc_8d1f3b5a7c9e4f2d6b0a1c3e5f7a9b2d"
_NOT_FOUND: Final = PROBLEM_TYPES["not-found"]
_AT: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_SCHEMA: Final = Schema(
    channels=1, height=28, width=28, class_names=tuple(str(digit) for digit in range(10)), num_units=60_000
)
# Of nobody: its secret is known to all.
_SIGNING_KEY: Final = SigningKey(b"example")
_EPSILON: Final = 10.0
_DELTA: Final = default_delta(_SCHEMA.num_units)
_SPEC: Final = TrainingSpec(method=Moments(), epsilon=1.0, delta=_DELTA)
_COST: Final = _SPEC.summarize(_SPEC.plan(_SCHEMA), _SCHEMA)
_LIMIT: Final = limit_units(_EPSILON, _DELTA)


def _statement(reserved: int, charged: int) -> AccountSummary:
    return AccountSummary(
        account_id=_ACCOUNT_ID,
        epsilon=_EPSILON,
        delta=_DELTA,
        limit_units=_LIMIT,
        reserved_units=reserved,
        charged_units=charged,
        entries=1,
        head_hash=GENESIS,
        frozen_reason=None,
    )


_OPENED: Final = Entry.sealed(
    account_id=_ACCOUNT_ID,
    seq=1,
    kind="open",
    dataset_id=_DATASET_ID,
    label=budget_label(_EPSILON, _DELTA),
    units=_LIMIT,
    at=_AT,
    previous_hash=GENESIS,
)

FORM: Final = {"file": "@mnist.npz", "epsilon": _EPSILON, "name": "MNIST"}

_UPLOAD_ID: Final = "upl_3f9a0c5d7e1b4a2c8d6f0e9b7a5c3d1f"
DATASET_REQUEST: Final = {"upload_id": _UPLOAD_ID, "epsilon": _EPSILON, "name": "MNIST"}

_UPLOAD: Final = UploadRead.from_upload(
    PartialUpload(_UPLOAD_ID, "key_1", 11_490_434, 4_194_304, _AT, _AT + timedelta(hours=24))
).model_dump(mode="json")

_VALIDATION: Final = ValidationRead(
    dataset_id=_DATASET_ID,
    state=DatasetState.INVALID,
    created_at=_AT,
    finished_at=_AT,
    code="dataset-invalid",
    detail="At least one image is animated. Save a single frame of each.",
    bad_files=[BadFile(name="train/7/0042.png", reason="At least one image is animated. Save a single frame of each.")],
    bad_count=1,
    checked=60_000,
).model_dump(mode="json")

_NOTICE: Final = Notice(code=NoticeCode.IGNORED_SPLIT, count=2, examples=("val/7/0042.png", "val/9/0001.png"))

_DATASET: Final = DatasetRead.from_view(
    DatasetView.from_dataset(
        StoredDataset(
            id=_DATASET_ID,
            tenant_id=DEFAULT_TENANT,
            account_id=_ACCOUNT_ID,
            name="MNIST",
            state=DatasetState.READY,
            schema=_SCHEMA,
            format="npz",
            has_test=True,
            records_path="",
            partition_key=None,
            created_at=_AT,
            deleted_at=None,
        ),
    ),
    _statement(0, 0),
).model_dump(mode="json", by_alias=True)

_COUNTS: Final = Counts(
    train=60_000,
    test=10_000,
    classes=dict.fromkeys(_SCHEMA.class_names, 6_000),
    test_classes=dict.fromkeys(_SCHEMA.class_names, 1_000),
    duplicates=0,
)
_IN_REVIEW: Final = {
    **_DATASET,
    **{"state": "review", "format": None, "schema": None, "has_test_split": False, "privacy": None},
    "notices": [_NOTICE.model_dump(mode="json")],
    "review": ClassReview.from_counts(_SCHEMA, _COUNTS, (_NOTICE,), _AT + timedelta(hours=24)).model_dump(mode="json"),
}

_DELETED: Final = Entry.sealed(
    account_id=_ACCOUNT_ID, seq=2, kind="delete", dataset_id=_DATASET_ID, at=_AT, previous_hash=_OPENED.hash
)
_RECEIPT: Final = DeletionReceipt(
    dataset_id=_DATASET_ID,
    deleted_at=_AT,
    removed=["the records"],
    kept=["what jobs have released"],
    account_id=_ACCOUNT_ID,
    entry=_DELETED,
).model_dump(mode="json")

_PRIVACY: Final = PrivacyRead.with_head(_statement(0, 0), _DATASET_ID, []).model_dump(mode="json")

REQUESTS: Final[dict[str, Any]] = {
    "default": {
        "summary": "The best images for this ε: the preset auto",
        "value": {"dataset_id": _DATASET_ID, "spec": {"epsilon": 1.0}},
    },
    "teach": {
        "summary": "Images that teach classifiers more, and look rougher",
        "value": {"dataset_id": _DATASET_ID, "spec": {"preset": "auto", "purpose": "teach", "epsilon": 1.0}},
    },
    "moments": {
        "summary": "Moments, the cheapest images",
        "value": {"dataset_id": _DATASET_ID, "spec": {"method": {"name": "moments"}, "epsilon": 1.0}},
    },
    "datalens": {
        "summary": "DataLens, started from moments and refined by votes",
        "value": {
            "dataset_id": _DATASET_ID,
            "spec": {
                "method": {
                    "name": "datalens",
                    "num_teachers": 2000,
                    "teacher": {"name": "dense"},
                    "warm_start": {"name": "moments"},
                },
                "epsilon": 10.0,
                "seed": 7,
            },
        },
    },
}

_PLAN: Final = PlanRead(
    spec=_SPEC,
    cost=_COST,
    fits=True,
    budget=BudgetRead.from_account(_statement(0, 0)),
    budget_after=BudgetRead.from_account(_statement(_COST.units, 0)),
).model_dump(mode="json")

_JOB: Final = JobRead.from_job(
    Job(
        id=_JOB_ID,
        tenant_id=DEFAULT_TENANT,
        dataset_id=_DATASET_ID,
        state=JobState.RUNNING,
        spec=_SPEC.model_dump(mode="json"),
        result=_SPEC.method.result,
        price=_COST.model_dump(mode="json"),
        reserved_units=_COST.units,
        charged_units=0,
        lease_token=1,
        attempts=1,
        cancel_requested=False,
        pause_requested=False,
        progress=Progress(Phase.TRAINING, 1, _COST.steps),
        error=None,
        created_at=_AT,
        started_at=_AT,
        finished_at=None,
    )
).model_dump(mode="json", by_alias=True)


_EVENTS: Final = EventPage(
    items=[EventRead.from_event(Event(1, EventType.CREATED, JobState.QUEUED, None, 0, 0, 0, _AT), _DELTA)],
    has_more=False,
    next_cursor=None,
).model_dump(mode="json")

LABELS: Final[dict[str, Any]] = {
    "labels": {
        "summary": "A name, two tags and a note",
        "value": {"name": "For the ethics board", "tags": ["2026", "final"], "notes": "Chosen after the review."},
    }
}

CONFIRMATIONS: Final[dict[str, Any]] = {
    "declared": {"summary": "With the budget that was declared", "value": {"confirm_classes": True}},
    "joins": {
        "summary": "With the budget that known records have, at its δ",
        "value": {"confirm_classes": True, "delta": _DELTA},
    },
}

CLONES: Final[dict[str, Any]] = {
    "again": {"summary": "The same once more", "value": {}},
    "cheaper": {"summary": "Another ε and another seed", "value": {"epsilon": 0.5, "seed": 1}},
}


def _page(item: dict[str, Any]) -> dict[str, Any]:
    return {"items": [item], "has_more": False, "next_cursor": None}


ANSWERS: Final[dict[str, Any]] = {
    "createUpload": _UPLOAD,
    "getUpload": _UPLOAD,
    "createDataset": {**_DATASET, "notices": [_NOTICE.model_dump(mode="json")]},
    "createDataset 202": _IN_REVIEW,
    "confirmDataset": {**_DATASET, "notices": [_NOTICE.model_dump(mode="json")]},
    "listDatasets": _page(_DATASET),
    "getDataset": _DATASET,
    "updateDataset": _DATASET,
    "getDatasetPrivacy": _PRIVACY,
    "getDatasetValidation": _VALIDATION,
    "deleteDataset": _RECEIPT,
    "raiseDatasetPrivacy": BudgetRead.from_account(_statement(0, 0)).model_dump(mode="json"),
    "createPlan": _PLAN,
    "createJob": _JOB,
    "listJobs": _page(_JOB),
    "getJob": _JOB,
    "updateJob": _JOB,
    "cancelJob": _JOB,
    "pauseJob": _JOB,
    "resumeJob": _JOB,
    "cloneJob": _JOB,
    "listJobEvents": _EVENTS,
    "getJobReport": {
        "format": "datalens-report/1",
        "view": "owner",
        "synthetic": True,
        "summary": ["These images are synthetic: a generator drew them."],
        "measures": [],
    },
    "getJobBundle": _SIGNING_KEY.sign(
        example_bundle(_JOB_ID, _SPEC, _SCHEMA, _OPENED, _EPSILON).model_dump(mode="json")
    ),
    "getSigningKey": SigningKeyRead.from_key(_SIGNING_KEY.public).model_dump(mode="json"),
    "getLiveness": {"status": "ok"},
    "getReadiness": {"status": "ok", "executor": "local"},
    "getProblemType": {
        "type": _NOT_FOUND.uri,
        "title": _NOT_FOUND.title,
        "status": _NOT_FOUND.status,
        "meaning": _NOT_FOUND.meaning,
        "remedy": _NOT_FOUND.remedy,
    },
}
"""A JSON body by operation id."""
