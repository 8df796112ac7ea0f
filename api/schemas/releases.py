"""Files of jobs, addresses to fetch them by, and generators, as requests and answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from datalens_service.api.addresses import Link
from datalens_service.base.copies import copied
from datalens_service.base.fields import Integer, Strict
from datalens_service.base.signatures import ALGORITHM, PublicKey
from datalens_service.services.dataset_declaration import Label
from datalens_service.store.datasets.artifacts import Artifact, Audience
from datalens_service.store.jobs.released_images import ImageOrigin
from datalens_service.store.jobs.released_models import StoredModel

MOST_SECONDS = 3600
"""Longest life of a signed address."""


class ArtifactRead(BaseModel):
    """A file that a job made."""

    name: str
    media_type: str
    size: int = Field(description="Size in bytes.")
    sha256: str = Field(description="SHA-256 of its content, hexadecimal; also its ETag.")
    audience: Audience = Field(
        description="- `anyone`: it may be passed on\n- `owner`: it depends on private records; do not pass it on"
    )
    releasable: bool = Field(description="Whether `audience` is `anyone`.")
    created_at: datetime
    url: Link

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        return copied(cls, artifact, url=f"/v1/jobs/{artifact.job_id}/artifacts/{artifact.name}")


class ArtifactList(BaseModel):
    """All files of a job that the key may see, by name."""

    items: list[ArtifactRead]


class ImageOriginRead(BaseModel):
    """A job that made a synthetic image."""

    job_id: str
    released_at: datetime = Field(description="When its images were ready.")
    links: ImageOriginLinks

    @classmethod
    def from_origin(cls, origin: ImageOrigin) -> Self:
        return copied(cls, origin, links=ImageOriginLinks(job=f"/v1/jobs/{origin.job_id}"))


class ImageOriginList(BaseModel):
    """The jobs that made a synthetic image."""

    items: list[ImageOriginRead]


class ImageOriginLinks(BaseModel):
    """Links of the origin of an image."""

    job: Link


class AddressRequest(Strict):
    """Says for how long somebody without a key may fetch a file."""

    expires_in: Integer = Field(default=600, ge=1, le=MOST_SECONDS, description="Seconds from now.")


class AddressRead(BaseModel):
    """An address that needs no key; whoever has it can fetch this one file until it expires."""

    url: Link
    audience: Literal["anyone"] = Field(
        default="anyone", description="Audience of the file: only files for anyone get an address."
    )
    expires_at: datetime


class GeneratorRead(BaseModel):
    """A generator: draws synthetic images, free of further cost."""

    id: str
    name: str
    job_id: str | None = Field(description="The job that made it; null for one that was imported.")
    covered_by_ledger: bool = Field(
        description="Whether this service trained it, so that its account and its proof are here. For an imported "
        "one, only the claims of its card are known."
    )
    card: dict[str, Any] | None = Field(description="Left out of lists.")
    created_at: datetime
    links: GeneratorLinks

    @classmethod
    def from_model(cls, generator: StoredModel, card: dict[str, Any] | None) -> Self:
        links = GeneratorLinks.from_model(generator)
        return copied(cls, generator, covered_by_ledger=not generator.imported, card=card, links=links)


class GeneratorLinks(BaseModel):
    """Links of a generator."""

    self_: Link = Field(serialization_alias="self")
    file: Link
    samples: Link
    job: Link | None

    @classmethod
    def from_model(cls, generator: StoredModel) -> Self:
        """Links of a generator."""
        base = f"/v1/generators/{generator.id}"
        job = f"/v1/jobs/{generator.job_id}" if generator.job_id else None
        return cls(self_=base, file=f"{base}/file", samples=f"{base}/samples", job=job)


class GeneratorForm(Strict):
    """Fields of an import beside the file."""

    name: Label | None = Field(default=None, description="Name for people; left out, it is the id.")


class SigningKeyRead(BaseModel):
    """A public key that checks signatures."""

    algorithm: Literal["Ed25519"] = ALGORITHM
    key_id: str = Field(description="First 16 digits of the SHA-256 of the 32 bytes; stands in every signature.")
    public_key: str = Field(description="32 bytes, hexadecimal.")
    pem: str = Field(description="The same as SubjectPublicKeyInfo.")

    @classmethod
    def from_key(cls, key: PublicKey) -> Self:
        return cls(key_id=key.key_id, public_key=key.hex, pem=key.pem)
