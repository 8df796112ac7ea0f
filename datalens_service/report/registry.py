"""A job as an entry of the public registry of deployments of differential privacy, tier 3.

https://github.com/opendp/deployments-registry-data has the schema. The entry is a draft, made from the report that may
be passed on. What the service does not know is said to be unknown, for the author of the entry to complete.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from datalens_service.privacy.guarantee import report_guarantee
from datalens_service.report.evidence import ANSWERS

View = Mapping[str, Any]

UNKNOWN: Final = "Unknown to the service; to be completed by the author of this entry."
_HEAD: Final = (
    "# A draft for https://github.com/opendp/deployments-registry-data, made from the report that may be passed on.\n"
    "# Complete what is unknown. The sector (deployment.basic.data_product_sector) is left out, as the schema has no\n"
    "# word for an unknown one.\n"
)
_IMAGES: Final = "Synthetic data"
_MODEL: Final = "Machine learning model"


def registry_entry(view: View) -> str:
    """Return the entry as YAML; `view` is the report that may be passed on."""
    entry = {
        "url_slug": f"{view['method']['name'].replace('_', '-')}-{view['date']}-{view['seal']['sha256'][:12]}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(view),
            "dp_variant": _variant(view),
            "privacy_loss": _privacy_loss(view),
            "deployment_model": _deployment_model(view),
            "accounting": _accounting(view),
            "implementation": _implementation(view),
            "administrative": _administrative(view),
        },
    }
    return _HEAD + yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)


def _basic(view: View) -> dict[str, Any]:
    made = "Synthetic images" if view["synthetic"] else "Labels of public images" if view.get("public_images") else ""
    return {
        "name": f"{made or 'A classifier of images'} made by {view['product']['name']}, {view['date']}",
        "data_curators": [UNKNOWN],
        "intended_use": UNKNOWN,
        "data_product_type": _IMAGES if view["synthetic"] else _MODEL,
        "data_product_region": UNKNOWN,
        "description": " ".join(view["summary"]),
        "publication_date": view["date"],
    }


def _variant(view: View) -> dict[str, Any]:
    return {
        "variant_name": "Approximate DP",
        "data_domain": ANSWERS["F5"](view),
        "unprotected_quantities": " ".join(view["privacy"]["scope"]["public"]),
    }


def _privacy_loss(view: View) -> dict[str, Any]:
    privacy = view["privacy"]
    return {
        "privacy_unit": ANSWERS["F3"](view),
        "privacy_unit_details": ANSWERS["F4"](view),
        "privacy_parameters": {"epsilon": privacy["headline"]["points"][0]["epsilon"], "delta": privacy["delta"]},
        "privacy_parameters_details": f"{report_guarantee(privacy)} {ANSWERS['F7'](view)} {ANSWERS['F6'](view)}",
    }


def _deployment_model(view: View) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "model_name_details": ANSWERS["F2"](view),
        "actors": " ".join(view["privacy"]["trust"]),
        "release_type": "One release",
        "release_type_details": f"{ANSWERS['F18'](view)} {view['privacy']['lifetime_note']}",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
        "access_type_details": ANSWERS["F15"](view),
    }


def _accounting(view: View) -> dict[str, Any]:
    return {
        "post_processing": "Everything that is drawn from or computed by what was released is post-processing.",
        "composition": ANSWERS["F12"](view),
    }


def _implementation(view: View) -> dict[str, Any]:
    hyperparameters = view["privacy"]["hyperparameters"]
    return {
        "preprocessing_and_hyperparameter_tuning": f"{hyperparameters['origin']} {hyperparameters['tuning_charged']}",
        "mechanisms": f"{ANSWERS['F10'](view)} {ANSWERS['F11'](view)} {ANSWERS['F1'](view)}",
        "justification": f"{ANSWERS['F13'](view)} Why this ε and this method were chosen: {UNKNOWN}",
    }


def _administrative(view: View) -> dict[str, Any]:
    return {
        "sources": f"Report with SHA-256 {view['seal']['sha256']}, and the proof of the job, privacy.json.",
        "notes": f"Contact: {ANSWERS['F26'](view)}",
        "registry_authors": [UNKNOWN],
    }
