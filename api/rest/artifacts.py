"""The files of a job one by one, addresses that fetch one without a key, and the key that checks signatures."""

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response, status

from datalens_service.api.deps import Caller, ObjectId, Services, ServicesDep, caller
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import file_content, ok, problems
from datalens_service.api.released_jobs import FileName
from datalens_service.api.schemas.releases import (
    AddressRead,
    AddressRequest,
    ArtifactList,
    ArtifactRead,
    SigningKeyRead,
)
from datalens_service.api.security import signed_urls
from datalens_service.base.errors import NotFound
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.store.access import access_log
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import Scope
from datalens_service.store.database_clock import read_clock
from datalens_service.store.datasets.artifacts import Artifact
from datalens_service.store.jobs import jobs

router = APIRouter(route_class=StrictRoute, tags=["downloads"])
_KEYED: Final = ("unauthorized", "not-found", "invalid-input", "store-unavailable", "internal-error")
_FILE: Final = {
    **file_content("The file.", "application/octet-stream"),
    **problems("range-not-satisfiable", "store-unavailable", "file-damaged"),
}


@router.get(
    "/v1/jobs/{job_id}/artifacts",
    summary="List the files of a job",
    dependencies=[Depends(caller)],
    responses=ok(200, "Name, size and digest of each.", *_KEYED),
)
def list_job_artifacts(job_id: ObjectId, services: ServicesDep, key: Caller) -> ArtifactList:
    """Files for the owner alone are listed for nobody else."""
    jobs.get(services.database, job_id)
    listed = services.artifacts.list_artifacts(job_id)
    return ArtifactList(
        items=[ArtifactRead.from_artifact(one) for one in listed if one.releasable or _sees_private(key)]
    )


@router.get(
    "/v1/jobs/{job_id}/artifacts/{name}",
    summary="Download a file of a job",
    dependencies=[Depends(caller)],
    responses={**problems(*_KEYED), **_FILE},
    response_class=Response,
)
def get_job_artifact(
    job_id: ObjectId, name: FileName, request: Request, services: ServicesDep, key: Caller
) -> Response:
    """Bytes as they were stored; the digest in the list, the ETag and `Repr-Digest` are the same."""
    return _sent(request, _visible(services, key, job_id, name))


@router.post(
    "/v1/jobs/{job_id}/artifacts/{name}:sign",
    summary="Let somebody without a key fetch a file",
    dependencies=[Depends(caller)],
    responses=ok(201, "The address and its expiry.", *_KEYED, "forbidden", headers=("Location",)),
)
def create_download_address(
    job_id: ObjectId,
    name: FileName,
    services: ServicesDep,
    key: Caller,
    response: Response,
    request: Annotated[AddressRequest | None, Body(openapi_examples=examples.ADDRESSES)] = None,
) -> AddressRead:
    """Releasable files only. Revoking the key that asked ends its addresses, too."""
    seconds = (request or AddressRequest()).expires_in
    expires_at = (read_clock(services.database) + timedelta(seconds=seconds)).replace(microsecond=0)
    url = signed_urls.sign(services.database, key, _visible(services, key, job_id, name), expires_at)
    response.headers["Location"] = url
    return AddressRead(url=url, expires_at=expires_at)


@router.get(
    "/v1/downloads/{granted}",
    summary="Download by a signed address",
    responses={**_FILE, **problems("forbidden", "store-unavailable", "internal-error")},
    response_class=Response,
)
def get_download(
    granted: Annotated[str, Path(max_length=1024, pattern=IDENTIFIER, description="The file as it was released.")],
    signature: Annotated[str, Query(max_length=64, pattern=IDENTIFIER, description="The file as it was released.")],
    request: Request,
    services: ServicesDep,
) -> Response:
    """Needs no key: the address is the right. Every use is noted under the key that asked for it."""
    grant, artifact = signed_urls.redeem(services.database, services.artifacts, granted, signature)
    access_log.note(
        services.database,
        grant.tenant_id,
        actor=grant.key_id,
        action="getDownload",
        object_id=grant.job_id,
        outcome=status.HTTP_200_OK,
    )
    return _sent(request, artifact)


@router.get(
    "/v1/signing-key",
    summary="Read the key that checks signatures of this installation",
    responses=ok(200, "The public key."),
)
def get_signing_key(services: ServicesDep) -> SigningKeyRead:
    """Needs no key: whoever was handed a release has none. Note it, and compare it over another channel."""
    return SigningKeyRead.from_key(services.signing_key)


def _sees_private(key: ApiKey) -> bool:
    return Scope.REPORTS_READ in key.scopes


def _visible(services: Services, key: ApiKey, job_id: str, name: str) -> Artifact:
    artifact = services.artifacts.get(job_id, name)
    if not artifact.releasable and not _sees_private(key):
        raise NotFound("There is no such file; owner-only files are deleted with their data set.")
    return artifact


def _sent(request: Request, artifact: Artifact) -> Response:
    name = f"{artifact.job_id}-{artifact.name}"
    return file_response(request, artifact.path, artifact.sha256, media_type=artifact.media_type, name=name)
