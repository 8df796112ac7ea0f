"""Grants what a mapping of the operator allows for the claims of a verified ID token, and nothing else."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from datalens_service.base.errors import Forbidden, InvalidInput, NotFound
from datalens_service.base.settings import Settings
from datalens_service.store.access import tenants
from datalens_service.store.access.identities import Identity
from datalens_service.store.access.roles import SCOPES, Role, Scope
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT

_NAMES: Final = ("name", "preferred_username", "email", "sub")
_NAMELESS: Final = "somebody without a name"
_NAME_LENGTH: Final = 200


def parse_grants(mapping: Mapping[str, str]) -> dict[str, frozenset[Scope]]:
    """The scopes that each value of a claim grants.

    Args:
        mapping: From values to a role, or to scopes with spaces between them.

    Raises:
        InvalidInput: A value is mapped to something else.
    """
    return {value: _parse(value, granted) for value, granted in mapping.items()}


def identify(database: Database, settings: Settings, claims: Mapping[str, Any]) -> Identity:
    """The person whom verified claims describe.

    Raises:
        Forbidden: No claim grants anything, or the tenant is unknown.
    """
    grants = parse_grants(settings.oidc_scopes)
    granted = [grants[value] for value in _values(claims.get(settings.oidc_scopes_claim)) if value in grants]
    if not granted:
        raise Forbidden("You are known, but have no rights here; ask whoever runs this service.")
    scopes = frozenset[Scope]().union(*granted)
    return Identity(
        issuer=settings.oidc_issuer,
        subject=str(claims["sub"]),
        name=_name(claims),
        tenant_id=_tenant_id(database, settings.oidc_tenant_claim, claims),
        role=least_role(scopes),
        scopes=scopes,
    )


def least_role(scopes: frozenset[Scope]) -> Role:
    """The role with the fewest scopes that holds all of these."""
    return min((role for role in Role if scopes <= SCOPES[role]), key=lambda role: len(SCOPES[role]))


def _parse(value: str, granted: str) -> frozenset[Scope]:
    try:
        scopes = SCOPES[Role(granted)] if granted in set(Role) else frozenset(map(Scope, granted.split()))
    except ValueError:
        scopes = frozenset()
    if not scopes:
        raise InvalidInput(f"⟦DATALENS_OIDC_SCOPES⟧ maps {value!r} to neither a role nor scopes.")
    return scopes


def _values(claim: Any) -> Iterable[str]:
    """Values of a claim: a list of texts, or one text with spaces between them, as OAuth writes scopes."""
    if isinstance(claim, str):
        return {claim, *claim.split()}
    return [value for value in claim if isinstance(value, str)] if isinstance(claim, list) else []


def _tenant_id(database: Database, claim: str, claims: Mapping[str, Any]) -> str:
    if not claim:
        return DEFAULT_TENANT
    value = claims.get(claim)
    try:
        return tenants.find(database, value if isinstance(value, str) else "").id
    except NotFound:
        raise Forbidden("You are known, but belong to no tenant here; ask whoever runs this service.") from None


def _name(claims: Mapping[str, Any]) -> str:
    candidates = (value for name in _NAMES if isinstance(value := claims.get(name), str))
    printable = ("".join(letter for letter in name if letter.isprintable()).strip() for name in candidates)
    return next(filter(None, printable), _NAMELESS)[:_NAME_LENGTH]
