"""The public key with which proofs, reports and archives of this installation can be checked."""

from fastapi import APIRouter

from api.deps import ServicesDep
from api.openapi.document import ok
from api.schemas.releases import SigningKeyRead

router = APIRouter(tags=["downloads"])


@router.get(
    "/v1/signing-key",
    operation_id="getSigningKey",
    summary="Read the key that checks signatures of this installation",
    responses=ok(200, "The public key."),
)
def get_signing_key(services: ServicesDep) -> SigningKeyRead:
    """Needs no key: whoever was handed a release has none. Note it, and compare it over another channel."""
    return SigningKeyRead.from_key(services.signing_key)
