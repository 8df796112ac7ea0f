"""Views of what attacks found, for the owner alone."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.rendering import Visitor
from datalens_service.api.schemas.audits import PrivacyAuditRead
from datalens_service.api.security.permissions import show_submitter
from datalens_service.audits.audit import AttackResult
from datalens_service.report.attacks import roc_curve
from datalens_service.services import audits as services_audits
from datalens_service.services.audit_advice import AuditAdvice, advise_on_dataset, advise_on_job
from datalens_service.store.access.roles import Scope
from datalens_service.store.jobs import audits
from datalens_service.store.jobs.audits import StoredAudit
from datalens_service.store.jobs.jobs import Job

MOST_AUDITS: Final = 25


class AuditRow(NamedTuple):
    """An audit in a table."""

    audit: PrivacyAuditRead
    target: str
    strongest: AttackResult | None


class FoundByAttacks(NamedTuple):
    """A section of a page."""

    rows: tuple[AuditRow, ...]
    picture: Markup | None
    advice: AuditAdvice


def found_on_dataset(services: Services, visitor: Visitor, dataset_id: str) -> FoundByAttacks | None:
    """Audits on a dataset; None for visitors who may not see their figures."""
    if Scope.REPORTS_READ not in visitor.key.scopes:
        return None
    page = audits.list_audits(services.database, visitor.tenant_id, limit=MOST_AUDITS, dataset_id=dataset_id)
    advice = advise_on_dataset(services.database, visitor.tenant_id, dataset_id)
    return _section(services, visitor, dataset_id, page.items, advice)


def found_on_job(services: Services, visitor: Visitor, job: Job) -> FoundByAttacks | None:
    """Audits that say something about a job; None for visitors who may not see their figures."""
    if Scope.REPORTS_READ not in visitor.key.scopes or job.released_at is None:
        return None
    about = services_audits.about_job(services.database, job)[::-1][:MOST_AUDITS]
    return _section(services, visitor, job.id, about, advise_on_job(services.database, visitor.tenant_id, job))


def find_row(audit: StoredAudit, visitor: Visitor, waiting: str | None = None) -> AuditRow:
    """An audit with what its target is called, and why it does not go on."""
    read = PrivacyAuditRead.from_audit(audit, waiting, show_submitter(audit.job, visitor.key))
    return AuditRow(read, services_audits.describe(read.target), None if read.result is None else read.result.strongest)


def draw(result: AttackResult, name: str) -> Markup:
    # Built as a tree, which escapes every text.
    return Markup(roc_curve(name, result.attack, result.figures.curve))  # noqa: S704


def _section(
    services: Services, visitor: Visitor, object_id: str, listed: Sequence[StoredAudit], advice: AuditAdvice
) -> FoundByAttacks:
    rows = tuple(find_row(audit, visitor) for audit in listed)
    newest = next((row.strongest for row in rows if row.strongest is not None), None)
    if any(row.audit.result is not None for row in rows):
        visitor.note(services, "seeAudits", object_id)
    return FoundByAttacks(rows, None if newest is None else draw(newest, "attacks-curve"), advice)
