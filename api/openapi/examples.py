"""Examples of what may be asked for: shown by the API description, and by errors about bodies that cannot be read."""

from typing import Any, Final

from datalens_service.privacy.accounting import default_delta

Json = dict[str, Any]

_DATASET_ID: Final = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
_JOB_ID: Final = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_UPLOAD_ID: Final = "upl_3f9a0c5d7e1b4a2c8d6f0e9b7a5c3d1f"

FORM: Final = {"file": "@mnist.npz", "epsilon": 10.0, "name": "MNIST"}
DATASET_REQUESTS: Final[Json] = {
    "declared": {
        "summary": "With a budget and a name",
        "value": {"upload_id": _UPLOAD_ID, "epsilon": 10.0, "name": "MNIST"},
    }
}
REQUESTS: Final[Json] = {
    "default": {
        "summary": "What suits these images at this ε: the preset auto",
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
LABELS: Final[Json] = {
    "labels": {
        "summary": "A name, two tags and a note",
        "value": {"name": "For the ethics board", "tags": ["2026", "final"], "notes": "Chosen after the review."},
    }
}
CONFIRMATIONS: Final[Json] = {
    "declared": {"summary": "With the budget that was declared", "value": {"confirm_classes": True}},
    "joins": {
        "summary": "With the budget that known records have, at its δ",
        "value": {"confirm_classes": True, "delta": default_delta(60_000)},
    },
}
CLONES: Final[Json] = {
    "again": {"summary": "The same once more", "value": {}},
    "cheaper": {"summary": "Another ε and another seed", "value": {"epsilon": 0.5, "seed": 1}},
}
ADDRESSES: Final[Json] = {"hour": {"summary": "For an hour", "value": {"expires_in": 3600}}}
DECISIONS: Final[Json] = {
    "decided": {
        "summary": "With a reason",
        "value": {"reason": "Report read on 12 January; agreed with the data protection officer."},
    }
}
RELEASE_CHANGES: Final[Json] = {
    "described": {
        "summary": "A title and a licence",
        "value": {"title": "Synthetic blood cells", "license": "CC-BY-4.0"},
    }
}
RELEASE_LINKS: Final[Json] = {
    "partner": {
        "summary": "For one partner, until the end of the year",
        "value": {"partner": "Northern Clinic", "expires_at": "2027-01-01T00:00:00Z"},
    }
}
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
ENCODER_FORM: Final[Json] = {"file": "@encoder.onnx"}
GENERATOR_FORM: Final[Json] = {"file": "@generator.safetensors", "name": "from elsewhere"}
PREDICTION_FORM: Final[Json] = {"file": "@images.zip"}
PREDICTION_REQUESTS: Final[Json] = {
    "grey": {"summary": "One grey image of 4×4 pixels", "value": {"images": [[[0, 0, 255, 0]] * 4]}}
}
RECORD_FORM: Final[Json] = {"file": "@image.png", "label": 1}
RECORD_REQUESTS: Final[Json] = {
    "grey": {"summary": "A grey image of 4×4 pixels", "value": {"image": [[0, 0, 255, 0]] * 4, "label": 1}}
}
AUDITS: Final[Json] = {
    "rehearsal": {
        "summary": "A method before it is released",
        "value": {
            "target": {
                "kind": "rehearsal",
                "dataset_id": _DATASET_ID,
                "spec": {"method": {"name": "moments"}, "epsilon": 1.0},
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
                "spec": {"method": {"name": "dp_sgd", "architecture": "lenet"}, "epsilon": 1.0},
            },
            "attacks": ["inversion"],
        },
    },
}
RETENTION: Final[Json] = {
    "months": {
        "summary": "Records for three months, results for a year",
        "value": {"datasets": 90, "results": 365, "deliveries": 30, "journal": 1095},
    }
}
QUOTAS: Final[Json] = {
    "small": {"summary": "A small laboratory", "value": {"bytes": 10_000_000_000, "datasets": 20, "jobs": 4}}
}
TENANT_REMOVAL: Final[Json] = {"named": {"summary": "Its name, once more", "value": {"name": "lab"}}}
