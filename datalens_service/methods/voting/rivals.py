"""G-PATE and GS-WGAN: votes of DataLens with settings that learn in minutes on two cores.

Long et al. 2021, "G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of Teacher
Discriminators" (docs/mechanisms/histogram.md); Chen, Orekondy and Fritz 2020, "GS-WGAN: A Gradient-Sanitized Approach
for Learning Differentially Private Generators", without its lots (docs/mechanisms/clipped_rows.md).

They were methods of their own in version 1.0: requests and stored jobs may name them in the place of `datalens`.
"""

from collections.abc import Mapping
from typing import Any, Final

from datalens_service.methods.base import named
from datalens_service.methods.voting.datalens import DataLens

_COMMON: Final[dict[str, Any]] = {
    "teacher": {"name": "kernel", "batch": 20},
    "shards": "class_pure",
    "images_per_step": 100,
    "stochastic": False,
    "threshold": "none",
    "vote_basis": "dct",
    "steps": 100,
    "z_dim": 16,
    "student": "class_networks",
    "student_averaging": 0.9,
}
_LEARNING_RATE: Final = 6e-3
"""Learning rate of the student, where no warm start needs a gentle one."""

RIVALS: Final[Mapping[str, Mapping[str, Any]]] = {
    "g_pate": _COMMON
    | {"votes": {"name": "histogram", "projections": 64, "bins": 4}, "clip": 0.2, "image_step_size": 1.0},
    "gs_wgan": _COMMON | {"votes": {"name": "clipped_rows"}, "clip": 0.05, "image_step_size": 4.0},
}
"""Settings of DataLens by the name of a rival."""


def restate_rival(method: Any) -> Any:
    """State a rival as DataLens with the rival's settings; anything else is returned unchanged.

    Args:
        method: Method as in a request or a stored job.

    Raises:
        ValueError: A rival has the votes of another method.
    """
    stated = named(method)
    name = stated.get("name") if isinstance(stated, dict) else None
    if not isinstance(name, str) or name not in RIVALS:
        return stated
    kind = RIVALS[name]["votes"]["name"]
    stated = {**RIVALS[name], **stated, "name": "datalens"}
    votes = named(stated["votes"])
    stated["votes"] = {"name": kind, **votes} if isinstance(votes, dict) else votes
    if isinstance(votes, dict) and stated["votes"]["name"] != kind:
        raise ValueError(f"{name} has votes of the kind {kind}: name datalens for others.")
    if stated.get("warm_start") is None and stated.get("student_learning_rate") is None:
        stated["student_learning_rate"] = _LEARNING_RATE
    return stated


def build_rival(name: str, **settings: Any) -> DataLens:
    """Build DataLens with the settings of a rival, and with others in their place."""
    return DataLens.model_validate(restate_rival({"name": name, **settings}))


def list_stored_names(method: str) -> tuple[str, ...]:
    """List the names under which stored jobs may have a method."""
    return (method, *RIVALS) if method == "datalens" else (method,)
