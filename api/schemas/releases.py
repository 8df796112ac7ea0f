"""Releases, files of jobs, addresses to fetch them by, and generators, as requests and answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints

from datalens_service.api.addresses import Link
from datalens_service.base.audience import FileAudience
from datalens_service.base.fields import PRINTABLE, Integer, Moment, Strict, copied, one_of
from datalens_service.base.signatures import ALGORITHM, PublicKey
from datalens_service.client.models import FileInfo, ReleaseLinkInfo, ReleaseWords
from datalens_service.data.export.licence import LICENCES
from datalens_service.services.dataset_declaration import Label
from datalens_service.services.releases import REPORT, SAMPLES, Release
from datalens_service.store.access.release_links import ReleaseLink
from datalens_service.store.datasets.artifacts import Artifact
from datalens_service.store.jobs.released_images import ImageOrigin
from datalens_service.store.jobs.released_models import CLASSIFIER, StoredModel

MOST_SECONDS = 3600
"""Longest life of a signed address."""


class ArtifactRead(FileInfo):
    """A file that a job made."""

    audience: FileAudience = Field(
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


class ReleaseLinks(BaseModel):
    """Addresses of a release, for keys that may read releases; null where it has no such file."""

    self_: Link = Field(serialization_alias="self")
    links: Link
    job: Link | None
    archive: Link | None = Field(description="A zip to publish: with card, licence, checksums, report and proof.")
    samples: Link | None
    report: Link | None = Field(description="The report for others.")

    @classmethod
    def from_release(cls, release: Release) -> Self:
        base, job = f"/v1/releases/{release.id}", f"/v1/jobs/{release.job_id}" if release.job_id else None
        archive = "classifier.zip" if release.kind == CLASSIFIER else "dataset"
        return cls(
            self_=base,
            links=f"{base}/links",
            job=job,
            archive=job and f"{job}/{archive}",
            samples=job and f"{job}/{SAMPLES}" if SAMPLES in release.files else None,
            report=job and f"{job}/report?audience=releasable" if REPORT in release.files else None,
        )


class ReleaseRead(ReleaseWords):
    """A release in words. Every member is public, released, or typed by its owner for others."""

    links: ReleaseLinks

    @classmethod
    def from_release(cls, release: Release) -> Self:
        shape = release.schema.model_dump(include={"class_names", "width", "height", "channels"})
        links = ReleaseLinks.from_release(release)
        return copied(cls, release, **shape, **release.summary._asdict(), links=links)


class ReleaseChanges(Strict):
    """Changes of the public title and licence of a release; members that are left out stay as they are."""

    title: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200), PRINTABLE] | None = Field(
        default=None, description="Public name; empty takes it away."
    )
    license: Annotated[str, one_of(LICENCES)] | None = Field(
        default=None,
        description="SPDX id of the terms; `other` chooses none.",
        json_schema_extra={"enum": [*LICENCES, None]},
    )


class ReleaseLinkCreate(Strict):
    """Request for a link of one partner to one release."""

    partner: Label = Field(description="Whom it is for; shown in your own lists alone.")
    expires_at: Moment | None = Field(default=None, description="When it ends; left out, once it is revoked.")


class ReleaseLinkRead(ReleaseLinkInfo):
    """A stored link as its owner sees it; never its secret."""

    last_used_at: datetime | None = Field(description="When somebody last opened it, or downloaded by it.")

    @classmethod
    def from_link(cls, link: ReleaseLink, last_used_at: datetime | None = None) -> Self:
        return copied(cls, link, last_used_at=last_used_at)


class ReleaseLinkList(BaseModel):
    """Links of a release, oldest first, ended ones included."""

    items: list[ReleaseLinkRead]


class ReleaseLinkCreated(BaseModel):
    """A link that was just made: shown this once."""

    link: ReleaseLinkRead
    url: Link = Field(description="The page of the release for the partner; whoever has it can open it.")


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
