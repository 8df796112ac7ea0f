"""Recommends an audit that would be accepted now, because it asks the code that accepts audits."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from datalens_service.audits.attacks import INVERSION
from datalens_service.audits.request import (
    AttackName,
    AuditRequest,
    RehearsedMethod,
    ReleasedJob,
    Target,
    UnprotectedNetwork,
)
from datalens_service.base.errors import DatalensError
from datalens_service.services import audits
from datalens_service.services.stored_requests import read_spec
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.jobs.jobs import Job

_MEMBERSHIP: Final = "loss_threshold"
"""It needs no reference models, so it is possible wherever an attack on membership is."""


class Proposal(NamedTuple):
    """An audit that somebody might ask for.

    Attributes:
        title: Title of a button.
        command: That asks for the same; empty where no short one does.
        instead: Sentence that offers it where a proposal before it would be refused.
    """

    title: str
    request: AuditRequest
    command: str
    instead: str = ""


class AuditAdvice(NamedTuple):
    """Advice about the next attack.

    Attributes:
        proposal: The first audit that would be accepted; None if there is none.
        refusal: The reason for refusing the first proposal; empty if it is not refused.
    """

    proposal: Proposal | None
    refusal: str


def advise_on_job(database: Database, tenant_id: str, job: Job) -> AuditAdvice:
    """An audit of what a job released, or else of its method in rehearsal."""
    released = ReleasedJob(kind="released", job_id=job.id)
    submit = f"datalens audits submit --job {job.id} --attack"
    proposals = (
        Proposal("Attack this model", _attack(released), f"{submit} {_MEMBERSHIP}"),
        *_propose_rehearsal(job),
        Proposal(
            "Invert gradients of this model",
            _attack(released, INVERSION),
            f"{submit} {INVERSION}",
            "Its gradients can be inverted.",
        ),
    )
    return _choose(database, tenant_id, proposals)


def _propose_rehearsal(job: Job) -> tuple[Proposal, ...]:
    # Parts of the records are planned anew. For sampled batches that takes seconds, and pages do not wait so long.
    if job.price.get("slack"):
        return ()
    spec = read_spec(job)
    asked = TrainingSpec(method=spec.method, epsilon=spec.epsilon)
    request = _attack(RehearsedMethod(kind="rehearsal", dataset_id=job.dataset_id, spec=asked))
    return (Proposal("Attack its method in rehearsal", request, "", "Its method can be attacked in rehearsal."),)


def advise_on_dataset(database: Database, tenant_id: str, dataset_id: str) -> AuditAdvice:
    """An audit of a network without privacy, which shows what attacks find where nothing protects the records."""
    request = _attack(UnprotectedNetwork(kind="unprotected", dataset_id=dataset_id))
    command = f"datalens audits submit {dataset_id} --unprotected --attack {_MEMBERSHIP}"
    return _choose(database, tenant_id, [Proposal("Attack a network without privacy", request, command)])


def _attack(target: Target, attack: AttackName = _MEMBERSHIP) -> AuditRequest:
    return AuditRequest(target=target, attacks=(attack,))


def _choose(database: Database, tenant_id: str, proposals: Iterable[Proposal]) -> AuditAdvice:
    refusal = ""
    for proposal in proposals:
        try:
            audits.accept(database, tenant_id, proposal.request)
        except DatalensError as error:
            refusal = refusal or error.detail
        else:
            return AuditAdvice(proposal, refusal)
    return AuditAdvice(None, refusal)
