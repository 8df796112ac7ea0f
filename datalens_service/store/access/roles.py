"""Roles of keys: a role holds scopes, and a key may be narrowed to some of them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from datalens_service.base.errors import InvalidInput


class Scope(StrEnum):
    """A right that a key may hold."""

    DATASETS_READ = "datasets:read"
    """Names of data sets, what their owner declared public of them, and their budgets."""
    DATASETS_WRITE = "datasets:write"
    """Upload, look at and delete records."""
    JOBS_READ = "jobs:read"
    """Jobs, their progress and events; plans."""
    JOBS_WRITE = "jobs:write"
    """Submit, pause, resume, cancel and repeat jobs: spends budget."""
    RELEASES_READ = "releases:read"
    """Generators, synthetic images and whatever else may be published."""
    RELEASES_WRITE = "releases:write"
    """Share releases; sign download addresses; import generators."""
    RELEASES_APPROVE = "releases:approve"
    """Look at results that wait for a second person, and release or withhold them."""
    REPORTS_READ = "reports:read"
    """Figures that the guarantee does not cover: for the owner alone."""
    PRIVACY_RAISE = "privacy:raise"
    """Raise a lifetime budget."""
    KEYS_WRITE = "keys:write"
    """API keys."""
    WEBHOOKS_WRITE = "webhooks:write"
    """Webhooks and their deliveries."""
    USAGE_READ = "usage:read"
    """Read what the tenant has used."""
    AUDIT_READ = "audit:read"
    """The audit journal."""


class Role(StrEnum):
    """The kind of person or program that a key is for."""

    OWNER = "owner"
    """Owns the records and may do everything."""
    OPERATOR = "operator"
    """Runs jobs within the budgets; sees no record and no figure for the owner alone."""
    STEWARD = "steward"
    """Releases or withholds what others made; sees no record and no figure for the owner alone."""
    CONSUMER = "consumer"
    """Gets what may be published, and sees nothing else."""


SCOPES: Final[dict[Role, frozenset[Scope]]] = {
    Role.OWNER: frozenset(Scope),
    Role.OPERATOR: frozenset(
        {
            Scope.DATASETS_READ,
            Scope.JOBS_READ,
            Scope.JOBS_WRITE,
            Scope.RELEASES_READ,
            Scope.RELEASES_WRITE,
            Scope.WEBHOOKS_WRITE,
            Scope.USAGE_READ,
        }
    ),
    Role.STEWARD: frozenset({Scope.DATASETS_READ, Scope.JOBS_READ, Scope.RELEASES_READ, Scope.RELEASES_APPROVE}),
    Role.CONSUMER: frozenset({Scope.RELEASES_READ}),
}
"""The scopes of each role."""


def stored_role(role: Role) -> tuple[Role, bool]:
    """Return a role as a row has it: a role that earlier versions know, and whether it is that of a steward."""
    return (Role.CONSUMER, True) if role is Role.STEWARD else (role, False)


def stored_scopes(role: Role, scopes: Iterable[Scope] | None) -> str | None:
    """Return scopes as a row has them; None for all of the role, which may hold some that an earlier version lacks."""
    return None if scopes is None or frozenset(scopes) == SCOPES[role] else " ".join(sorted(scopes))


def check_scopes(role: Role, scopes: Iterable[Scope] | None) -> frozenset[Scope]:
    """The scopes of a key: all of its role, or those that are named."""
    if scopes is None:
        return SCOPES[role]
    requested = frozenset(scopes)
    if not requested or not requested <= SCOPES[role]:
        held = ", ".join(sorted(SCOPES[role]))
        raise InvalidInput(f"A key for {role} may be narrowed to one or more of: {held}.")
    return requested
