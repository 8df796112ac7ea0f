"""Examples for the API description: keys, journals, webhooks, files and generators."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from api.schemas.access import AuditPage, AuditRead, KeyCreated, KeyList, KeyRead, UsageRead
from api.schemas.classifiers import ClassifierRead, Prediction, PredictionList
from api.schemas.datasets import EntryPage
from api.schemas.releases import AddressRead, ArtifactList, ArtifactRead, GeneratorRead
from api.schemas.webhooks import DeliveryRead, WebhookList, WebhookRead
from datalens_service.programs.individual_epsilon import RealisedEpsilon
from datalens_service.proof.hash_chain import GENESIS, Entry, budget_label
from datalens_service.store.access.access_log import AuditEntry
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import SCOPES, Role
from datalens_service.store.access.webhooks import Delivery, Webhook
from datalens_service.store.jobs.released_models import CLASSIFIER, StoredModel
from datalens_service.store.tables import DEFAULT_TENANT

Json = dict[str, Any]

_AT: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_JOB_ID: Final = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_DATASET_ID: Final = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

ADDRESSES: Final[Json] = {"hour": {"summary": "For an hour", "value": {"expires_in": 3600}}}
RAISES: Final[Json] = {
    "more": {
        "summary": "A larger lifetime budget",
        "value": {"epsilon": 12.0, "reason": "Second study; agreed with the data protection officer on 5 January."},
    }
}
KEYS: Final[Json] = {
    "consumer": {"summary": "For whoever gets the images", "value": {"name": "partner", "role": "consumer"}},
    "narrow": {
        "summary": "An operator that only looks, for a month",
        "value": {
            "name": "monitor",
            "role": "operator",
            "scopes": ["jobs:read", "datasets:read"],
            "expires_at": "2026-02-05T00:00:00Z",
        },
    },
}
ROTATIONS: Final[Json] = {"day": {"summary": "A day beside each other", "value": {"overlap_seconds": 86_400}}}
WEBHOOKS: Final[Json] = {
    "ends": {
        "summary": "When a job ends",
        "value": {"url": "https://example.org/hook", "events": ["job.succeeded", "job.failed"]},
    }
}
WEBHOOK_CHANGES: Final[Json] = {"off": {"summary": "Not for now", "value": {"enabled": False}}}
GENERATOR_FORM: Final[Json] = {"file": "@generator.safetensors", "name": "from elsewhere"}

PREDICTION_FORM: Final[Json] = {"file": "@images.zip"}
PREDICTION_REQUEST: Final[Json] = {"images": [[[0, 0, 255, 0]] * 4]}
RECORD_FORM: Final[Json] = {"file": "@image.png", "label": 1}
RECORD_REQUEST: Final[Json] = {"image": [[0, 0, 255, 0]] * 4, "label": 1}

_KEY: Final = ApiKey(
    id="key_4c1d7e0a9b3f4a6c8d2e5f7a1b0c3d4e",
    name="partner",
    prefix="Xb3kQ9aZ",
    tenant_id=DEFAULT_TENANT,
    role=Role.CONSUMER,
    scopes=SCOPES[Role.CONSUMER],
    requests_per_minute=None,
    concurrent_requests=None,
    created_at=_AT,
    expires_at=None,
    revoked_at=None,
)
_WEBHOOK: Final = Webhook(
    "wh_7a1c9e3b5d2f4a6c8e0b1d3f5a7c9e2b", DEFAULT_TENANT, "https://example.org/hook", ("job.succeeded",), True, _AT
)
_DELIVERY: Final = DeliveryRead.from_delivery(
    Delivery(
        id="msg_2b4d6f8a0c1e43578d9bacbed0f1e2d3",
        webhook_id=_WEBHOOK.id,
        event="job.succeeded",
        payload='{"type":"job.succeeded","timestamp":"2026-01-05T09:30:00Z","data":{"job_id":"' + _JOB_ID + '"}}',
        state="delivered",
        attempts=1,
        next_attempt_at=_AT,
        status=204,
        error=None,
        created_at=_AT,
        delivered_at=_AT,
    )
).model_dump(mode="json")
_ENTRY: Final = Entry.sealed(
    account_id="acc_8d1f3b5a7c9e4f2d6b0a1c3e5f7a9b2d",
    seq=1,
    kind="open",
    dataset_id=_DATASET_ID,
    label=budget_label(10.0, 1e-5),
    units=5_000_000_000_000_000,
    at=_AT,
    previous_hash=GENESIS,
)
_DRAFT: Final = AuditEntry(
    tenant_id=DEFAULT_TENANT,
    seq=1,
    at=_AT,
    actor=_KEY.id,
    action="getJobReport",
    object_id=_JOB_ID,
    outcome=200,
    detail="",
    previous_hash=GENESIS,
)
_AUDIT: Final = replace(_DRAFT, hash=_DRAFT.computed_hash())
_GENERATOR: Final = GeneratorRead.from_model(
    StoredModel("gen_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e", DEFAULT_TENANT, _JOB_ID, _JOB_ID, None, None, _AT), None
).model_dump(mode="json", by_alias=True)
_CLASSIFIER: Final = ClassifierRead.from_model(
    StoredModel("clf_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e", DEFAULT_TENANT, _JOB_ID, _JOB_ID, None, None, _AT, CLASSIFIER),
    None,
).model_dump(mode="json", by_alias=True)
_PREDICTIONS: Final = PredictionList(
    class_names=["cat", "dog"], items=[Prediction(file="0001.png", class_name="dog", probabilities=[0.125, 0.875])]
).model_dump(mode="json")
_ADDRESS: Final = AddressRead(url="/v1/downloads/eyJ0ZW5hbnRfaWQi?signature=q83vEjRW", expires_at=_AT)
_ARTIFACT: Final = ArtifactRead(
    name="generator.safetensors",
    media_type="application/octet-stream",
    size=40_960,
    sha256=_DIGEST,
    audience="anyone",
    releasable=True,
    created_at=_AT,
    url=f"/v1/jobs/{_JOB_ID}/artifacts/generator.safetensors",
)
_CREATED: Final = KeyCreated(key=KeyRead.from_key(_KEY), api_key="dlk_…").model_dump(mode="json")


def _page(item: Json) -> Json:
    return {"items": [item], "has_more": False, "next_cursor": None}


ANSWERS: Final[Json] = {
    "listDatasetPrivacyEntries": EntryPage(items=[_ENTRY], has_more=False, next_cursor=None).model_dump(mode="json"),
    "listJobArtifacts": ArtifactList(items=[_ARTIFACT]).model_dump(mode="json"),
    "createDownloadAddress": _ADDRESS.model_dump(mode="json"),
    "listGenerators": _page(_GENERATOR),
    "getGenerator": _GENERATOR,
    "importGenerator": {**_GENERATOR, "job_id": None, "covered_by_ledger": False},
    "listClassifiers": _page(_CLASSIFIER),
    "getClassifier": _CLASSIFIER,
    "createPredictions": _PREDICTIONS,
    "createIndividualEpsilon": RealisedEpsilon(epsilon=0.4137, epsilon_of_job=1.0, delta=1e-5, steps=500).model_dump(),
    "createApiKey": _CREATED,
    "rotateApiKey": _CREATED,
    "listApiKeys": KeyList(items=[KeyRead.from_key(_KEY)]).model_dump(mode="json"),
    "getApiKey": KeyRead.from_key(_KEY).model_dump(mode="json"),
    "revokeApiKey": KeyRead.from_key(replace(_KEY, revoked_at=_AT)).model_dump(mode="json"),
    "createWebhook": {"webhook": WebhookRead.from_webhook(_WEBHOOK).model_dump(mode="json"), "secret": "whsec_…"},
    "rotateWebhookSecret": {"webhook": WebhookRead.from_webhook(_WEBHOOK).model_dump(mode="json"), "secret": "whsec_…"},
    "listWebhooks": WebhookList(items=[WebhookRead.from_webhook(_WEBHOOK)]).model_dump(mode="json"),
    "getWebhook": WebhookRead.from_webhook(_WEBHOOK).model_dump(mode="json"),
    "updateWebhook": WebhookRead.from_webhook(replace(_WEBHOOK, enabled=False)).model_dump(mode="json"),
    "testWebhook": _DELIVERY,
    "redeliverWebhookDelivery": _DELIVERY,
    "listWebhookDeliveries": _page(_DELIVERY),
    "getUsage": UsageRead(
        datasets=1,
        jobs={"succeeded": 3},
        generators=3,
        classifiers=1,
        api_keys=2,
        artifact_bytes=12_582_912,
        job_seconds=431.5,
    ).model_dump(mode="json"),
    "listAuditEntries": AuditPage(
        items=[AuditRead.from_entry(_AUDIT)],
        has_more=False,
        next_cursor=None,
        tenant_id=DEFAULT_TENANT,
        head_hash=_AUDIT.hash,
    ).model_dump(mode="json"),
}
"""A JSON body by operation id."""
