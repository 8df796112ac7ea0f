"""A worker of the last release takes no job that it would refuse or misread."""

import hashlib
import json
from typing import Any, Final, NamedTuple

from datalens_service.audits.request import AuditRequest
from datalens_service.methods import Plan
from datalens_service.spec import TrainingSpec
from datalens_service.store.schema.tables import JOB_FORMAT


class Released(NamedTuple):
    """What jobs of a release store.

    Attributes:
        digest: Of the JSON schemas of what is stored, without their words.
    """

    version: str
    format: int
    digest: str


LAST: Final = Released("1.1.0", 1, "948cb953dfeeed86")


def strip(schema: Any) -> Any:
    """Leave the words out, which no program reads."""
    if isinstance(schema, dict):
        said = ("description", "title", "examples")
        return {
            name: strip(value) for name, value in schema.items() if not (name in said and isinstance(value, str | list))
        }
    return [strip(item) for item in schema] if isinstance(schema, list) else schema


def digest_of(*models: Any) -> str:
    schemas = [strip(model.model_json_schema()) for model in models]
    return hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:16]


def test_jobs_that_the_last_release_cannot_read_have_a_format_of_their_own() -> None:
    now = digest_of(TrainingSpec, AuditRequest, Plan)
    wanted = LAST.format if now == LAST.digest else LAST.format + 1
    assert wanted == JOB_FORMAT, (
        f"What a job stores is no longer that of {LAST.version} (now {now}): JOB_FORMAT has to be {wanted}. If "
        f"{LAST.version} is not released yet, name the digest in LAST."
    )


def test_a_member_more_is_seen_and_another_word_is_not() -> None:
    class Other(TrainingSpec):
        more: int = 1

    class Described(TrainingSpec):
        """It says something else."""

    assert digest_of(Described) == digest_of(TrainingSpec) != digest_of(Other)
