"""What audits found about a job, for the owner's report."""

from __future__ import annotations

from collections.abc import Sequence

from datalens_service.audits.audit import AttackResult, AuditResult
from datalens_service.audits.request import AuditRequest
from datalens_service.evaluation.report.attacks import AttackFinding, RocPoint
from datalens_service.services.audits import describe
from datalens_service.store.jobs.audits import StoredAudit


def asks_for_members(audit: StoredAudit) -> bool:
    """Whether it attacks membership, which is what reports state."""
    return AuditRequest.model_validate(audit.job.spec).membership is not None


def findings_of(audits: Sequence[StoredAudit]) -> tuple[AttackFinding, ...]:
    """Every attack on membership of the audits that have a result, in their order."""
    return tuple(
        _finding(audit, attack)
        for audit in audits
        if audit.result is not None
        for attack in AuditResult.model_validate(audit.result).attacks
    )


def _finding(audit: StoredAudit, attack: AttackResult) -> AttackFinding:
    figures = attack.figures
    return AttackFinding(
        audit=audit.job.id,
        target=describe(AuditRequest.model_validate(audit.job.spec).target),
        attack=attack.attack,
        source=attack.source,
        members=figures.members,
        non_members=figures.non_members,
        auc=figures.auc,
        interval=figures.interval,
        auc_allowed=figures.auc_allowed,
        curve=tuple(RocPoint.model_validate(point.model_dump()) for point in figures.curve),
    )
