"""API keys, the audit journal and usage, as requests and answers."""

from datetime import datetime
from typing import Final, Self

from pydantic import BaseModel, Field

from datalens_service.api.schemas.common import NumberedPage, listed
from datalens_service.base.fields import Integer, Moment, Strict, copied
from datalens_service.proof.spenders import Actor
from datalens_service.services.dataset_declaration import Label
from datalens_service.store.access.access_log import AuditEntry
from datalens_service.store.access.keys import ApiKey, KeyRequest
from datalens_service.store.access.roles import Role, Scope

ROLES = {
    Role.OWNER: "owns the records; may do everything",
    Role.OPERATOR: "runs jobs within the budgets; sees no record and nothing for the owner alone",
    Role.STEWARD: "releases or withholds results that wait for a second person; sees nothing for the owner alone",
    Role.CONSUMER: "gets what may be published, and sees nothing else",
}


class KeyCreate(Strict):
    """Request for a new key."""

    name: Label = Field(description="Whose key it is.")
    role: Role = Field(description=listed(ROLES))
    scopes: list[Scope] | None = Field(
        default=None, min_length=1, max_length=len(Scope), description="Fewer than the role holds; left out, all."
    )
    expires_at: Moment | None = Field(default=None, description="When it expires; left out, never.")
    requests_per_minute: Integer | None = Field(
        default=None, ge=1, le=1_000_000, description="Left out, the service's."
    )
    concurrent_requests: Integer | None = Field(default=None, ge=1, le=10_000, description="Left out, the service's.")

    def made_with(self, key: ApiKey) -> KeyRequest:
        """Return the request to the store, by the holder of another key of the tenant."""
        return copied(KeyRequest, self, tenant_id=key.tenant_id, made_by=key.id)


class KeyRotation(Strict):
    """Request that says how long the old key goes on working beside the new one."""

    overlap_seconds: Integer = Field(default=3600, ge=0, le=7 * 86_400)


class KeyRead(BaseModel):
    """A stored key as its owner sees it; never the key itself."""

    id: str
    name: str
    prefix: str = Field(description="First characters behind `dlk_`.")
    single_sign_on: bool = Field(description="True for a person who signs in elsewhere and has sessions, but no key.")
    role: Role
    scopes: list[Scope]
    made_by: str | None = Field(
        description="Id of the key that made it, whose holder has seen it; null if it was made on the machine of the "
        "service."
    )
    requests_per_minute: int | None
    concurrent_requests: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_noted_at: datetime | None = Field(
        default=None, description="Time of its last entry in the audit journal, in lists of keys; most reads have none."
    )

    @classmethod
    def from_key(cls, key: ApiKey, last_noted_at: datetime | None = None) -> Self:
        return copied(cls, key, scopes=sorted(key.scopes), last_noted_at=last_noted_at)


class KeyCreated(BaseModel):
    """A key that was just made: shown this once."""

    key: KeyRead
    api_key: str = Field(description="`dlk_…`. Keep it: it is never shown again.")


class KeyList(BaseModel):
    """Keys of the tenant, oldest first, revoked ones included."""

    items: list[KeyRead]


class AuditRead(BaseModel):
    """One line of the audit journal. `hash` seals all other members, and the tenant's id, onto `previous_hash`."""

    seq: int
    at: datetime
    actor: str = Field(description="Id of the API key or person; `local` for a command on the machine.")
    action: str = Field(description="Operation of this API.")
    object_id: str | None = Field(description="The object that it changed or created.")
    outcome: int = Field(description="HTTP status.")
    detail: str = Field(description="The given reason, or the new state of the object.")
    previous_hash: str
    hash: str

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> Self:
        return copied(cls, entry)


OUTCOME: Final = r"^[1-5]([0-9]{2}|xx)$"
"""Form of an outcome that is asked for."""


class AuditPage(NumberedPage[AuditRead]):
    """A page of the journal."""

    next_cursor: int | None = Field(
        description="Value of `after` for the next page, or, newest first, of `before`; null at the end for now."
    )
    actors: list[Actor] = Field(description="Names of the keys and persons of this page.")
    tenant_id: str
    head_hash: str = Field(description="Hash of the last entry; note it, and you will notice a rewritten journal.")


class QuotasRead(BaseModel):
    """Limits of what the tenant may have at once; null is no limit. The operator sets it."""

    bytes: int | None = Field(description="Of records on the disk, and of uploads that were announced.")
    datasets: int | None = Field(description="That are not deleted.")
    jobs: int | None = Field(description="And audits, that have not ended.")
    requests_per_minute: int | None = Field(description="Of all keys together.")


class UsageRead(BaseModel):
    """Totals of everything that the tenant has used."""

    datasets: int
    jobs: dict[str, int] = Field(description="Number of jobs by state.")
    generators: int
    classifiers: int
    api_keys: int = Field(description="That work now.")
    artifact_bytes: int = Field(description="Bytes of files that anybody may have.")
    quotas: QuotasRead
    job_seconds: float = Field(description="Seconds of ended jobs from first start to end, without audits.")
