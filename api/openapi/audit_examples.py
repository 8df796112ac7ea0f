"""Examples of audits for the API description; the figures are of no private record."""

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from api.schemas.audits import PrivacyAuditRead
from datalens_service.audits.audit import AttackResult, AuditResult
from datalens_service.audits.membership import measure
from datalens_service.audits.request import AuditRequest
from datalens_service.phases import Phase
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.store.jobs.audits import StoredAudit
from datalens_service.store.jobs.jobs import Job, JobState, Progress
from datalens_service.store.tables import DEFAULT_TENANT

_DATASET_ID: Final = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
_JOB_ID: Final = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_AUDIT_ID: Final = "aud_2c4e6a8b0d1f4e3a9b7c5d3e1f0a2b4c"
_AT: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_EPSILON, _DELTA = 1.0, 1e-5

REQUESTS: Final[dict[str, Any]] = {
    "rehearsal": {
        "summary": "A method before it is released",
        "value": {
            "target": {
                "kind": "rehearsal",
                "dataset_id": _DATASET_ID,
                "spec": {"method": {"name": "moments"}, "epsilon": _EPSILON},
            }
        },
    },
    "released": {
        "summary": "The model of a job, by the attack that needs no other models",
        "value": {"target": {"kind": "released", "job_id": _JOB_ID}, "attacks": ["loss_threshold"]},
    },
    "unprotected": {
        "summary": "A network without privacy, for comparison",
        "value": {"target": {"kind": "unprotected", "dataset_id": _DATASET_ID, "passes": 30}},
    },
    "inversion": {
        "summary": "Images from the noisy gradients of single records",
        "value": {
            "target": {
                "kind": "rehearsal",
                "dataset_id": _DATASET_ID,
                "spec": {"method": {"name": "dp_sgd", "architecture": "lenet"}, "epsilon": _EPSILON},
            },
            "attacks": ["inversion"],
        },
    },
}


def _result() -> dict[str, Any]:
    scores = np.linspace(0, 1, 100)
    mu = mu_for_epsilon(_EPSILON, _DELTA)
    example = AttackResult(attack="loss_threshold", source="Yeom et al. 2018", figures=measure(scores, scores, mu))
    result = AuditResult(
        result="generator", mu=mu, units_per_model=15_000, references=0, attacks=(example,), classes=()
    )
    return result.model_dump(mode="json")


def _audit() -> StoredAudit:
    asked = {**REQUESTS["rehearsal"]["value"], "attacks": ["loss_threshold"]}
    job = Job(
        id=_AUDIT_ID,
        tenant_id=DEFAULT_TENANT,
        dataset_id=_DATASET_ID,
        state=JobState.SUCCEEDED,
        spec=AuditRequest.model_validate(asked).model_dump(mode="json"),
        result=None,
        price={},
        reserved_units=0,
        charged_units=0,
        lease_token=1,
        attempts=1,
        cancel_requested=False,
        pause_requested=False,
        progress=Progress(Phase.ATTACKING, 1, 1),
        error=None,
        created_at=_AT,
        started_at=_AT,
        finished_at=_AT,
        is_audit=True,
    )
    return StoredAudit(job, None, _result())


def answers() -> dict[str, Any]:
    """A JSON body by operation id; made when the description is asked for: figures of attacks load scipy.stats."""
    audit = PrivacyAuditRead.from_audit(_audit()).model_dump(mode="json", by_alias=True)
    return {
        "createAudit": audit,
        "listAudits": {"items": [audit], "has_more": False, "next_cursor": None},
        "getAudit": audit,
        "cancelAudit": audit,
    }
