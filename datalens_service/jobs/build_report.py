"""The report of a job, from what was planned, what the ledger says, and what was measured; and its proof."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from datalens_service.audits.audit import AuditResult
from datalens_service.audits.request import AuditRequest
from datalens_service.base.errors import DatalensError
from datalens_service.base.fields import copied
from datalens_service.base.plugins import find_origin
from datalens_service.base.settings import Settings
from datalens_service.base.source_commit import source_commit
from datalens_service.evaluation.evaluate import Evaluation
from datalens_service.mechanisms import PlannedRelease
from datalens_service.methods.sums.record_sums import describe_working_size
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED, NeighboringRelation, delta_beside, round_up
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.privacy.recomputation import GaussianReleases, composed_epsilon, discrete_releases
from datalens_service.proof.job_proof import AccountProof, build_account_proof
from datalens_service.proof.proof_verification import check_draws
from datalens_service.report.attacks import AttackFinding
from datalens_service.report.build import JournalFacts, MethodFacts, Report
from datalens_service.report.disclosures import Recomputation
from datalens_service.report.document import Product
from datalens_service.report.privacy_statement import Lifetime, PrivacyStatement, first_releases, privacy_statement
from datalens_service.report.result_wording import PUBLIC_IMAGES
from datalens_service.services.audits import about_job, describe
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.audits import StoredAudit
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger.account_summary import entries, summarize_account
from datalens_service.store.ledger.journal_pages import read_spenders
from datalens_service.training import Result

# A stated ε is rounded up to four digits and comes from charges rounded up to whole units.
_AGREEMENT: Final = 1e-3


def build_job_report(
    database: Database, settings: Settings, job_id: str, result: Result, evaluation: Evaluation
) -> Report:
    """Everything that is known about a job whose releases are all made."""
    job = jobs.get(database, job_id)
    spec = TrainingSpec.model_validate(job.spec)
    schema = result.model.schema
    plan = result.plan.releases
    privacy = _privacy(database, job, spec, result, first_releases(plan, result.steps_made))
    asked = [audit for audit in about_job(database, job) if asks_for_members(audit)]
    return Report(
        product=Product.at_commit(settings.commit or source_commit()),
        contact=settings.contact,
        dataset_id=job.dataset_id,
        public_schema=schema,
        method=MethodFacts(
            name=spec.method.name,
            spec=spec.model_dump(mode="json"),
            plan=plan,
            rationale=result.rationale,
            plugin=find_origin(spec.method.name),
            working_size=describe_working_size(result.plan, schema),
        ),
        privacy=privacy,
        journal=_journal(database, job.dataset_id),
        recomputation=recompute_epsilon(privacy),
        measures=evaluation.measures,
        measured=evaluation.measured,
        attacked=bool(asked),
        attacks=list_findings(asked),
        result=_kind(result),
        served=settings.served,
        public_inputs=result.public_inputs,
        individual=result.extras.individual,
    )


def _kind(result: Result) -> str:
    """Name the kind of what is released, as reports call it."""
    images = result.public_inputs.images
    return PUBLIC_IMAGES if images is not None and images.verbatim else result.model.result


def build_proof(database: Database, job_id: str, report: Report) -> AccountProof:
    """Build what it takes to recompute the cost of a job whose releases are all made, and of its account."""
    dataset_id = jobs.get(database, job_id).dataset_id
    with database.session() as session:
        account, journal = summarize_account(session, dataset_id), entries(session, dataset_id)
        spenders = read_spenders(session, (entry.job_id for entry in journal))
        return build_account_proof(job_id, report, journal, account.epsilon, account.delta, spenders)


def recompute_epsilon(privacy: PrivacyStatement) -> Recomputation:
    """ε of the releases that were made, by dp_accounting; the job goes on if it cannot be had."""
    by = "dp_accounting (privacy loss distributions)"
    counts = Counter(privacy.releases)
    try:
        given = [_gaussian(release, times) for release, times in counts.items()]
        epsilon = composed_epsilon(given, delta_beside(privacy.headline.slack, privacy.delta))
    except DatalensError as error:
        return Recomputation(by=by, epsilon=None, delta=privacy.delta, agrees=None, note=error.detail)
    if not math.isfinite(epsilon):
        note = "The privacy loss is too large to be stated; an ε of that size promises nothing."
        return Recomputation(by=by, epsilon=None, delta=privacy.delta, agrees=None, note=note)
    lost = privacy.headline.ledger_units - sum(release.cost() for release in privacy.releases)
    # A charge whose release was lost is in the headline and not among the releases: more is no contradiction.
    agrees = epsilon <= privacy.headline.epsilon + _AGREEMENT and (
        lost > 0 or epsilon >= privacy.headline.epsilon - _AGREEMENT
    )
    note = "It reads the mechanisms listed here and shares no code with the accountant."
    return Recomputation(by=by, epsilon=round_up(epsilon), delta=privacy.delta, agrees=agrees, note=note)


def _gaussian(release: PlannedRelease, times: int) -> GaussianReleases:
    """The Gaussian that equal releases are a post-processing of; of sampled ones up to their slack."""
    mechanism, relation = release.mechanism, NeighboringRelation.ZERO_OUT
    block = mechanism.block()
    if block is not None:
        block.recompute_price(mechanism.noise_multiplier())
        if isinstance(block, PoissonSampling):
            check_draws(mechanism, block)
        return GaussianReleases(Fraction(LEDGER_UNITS_PER_MU_SQUARED, block.charge(relation).ledger_units), times)
    queries = release.count * times * mechanism.queries_per_unit(relation)
    return discrete_releases(mechanism.sensitivity_squared(relation), mechanism.noise_stddev, queries)


def _journal(database: Database, dataset_id: str) -> JournalFacts:
    with database.session() as session:
        now = summarize_account(session, dataset_id)
        first = entries(session, dataset_id)[0]
    return JournalFacts(
        opened_on=first.at.date(),
        opening_entry=first.hash,
        entries=now.entries,
        head=now.head_hash,
        linked_datasets=datasets.linked(database, dataset_id),
    )


def _privacy(
    database: Database, job: Job, spec: TrainingSpec, result: Result, releases: Sequence[PlannedRelease]
) -> PrivacyStatement:
    schema = result.model.schema
    return privacy_statement(
        releases=releases,
        # From the ledger, not from the plan: a charge whose release was lost counts too.
        charged_units=job.charged_units,
        # Charged with the first sampled release, if any was made.
        slack_charged=sum(release.slack for release in releases),
        epsilon_limit=spec.epsilon,
        limit_units=spec.limit_units(schema),
        delta=spec.delta_at(schema),
        num_units=schema.num_units,
        unit=schema.unit,
        records_per_unit=schema.records_per_unit,
        groups_ignored=schema.groups_ignored,
        lifetime=_lifetime(database, job),
        result=_kind(result),
        public_inputs=result.public_inputs,
    )


def _lifetime(database: Database, job: Job) -> Lifetime:
    """The account as it will be when the job has ended and returned what it did not spend."""
    with database.session() as session:
        now = summarize_account(session, job.dataset_id)
    settled = replace(now, reserved_units=now.reserved_units - job.reserved_units)
    return Lifetime(
        limit=settled.epsilon,
        spent=settled.epsilon_spent,
        reserved=settled.epsilon_reserved,
        remaining=settled.epsilon_remaining,
        delta=settled.delta,
        linked=bool(datasets.linked(database, job.dataset_id)),
    )


def asks_for_members(audit: StoredAudit) -> bool:
    """Return True if it attacks membership, which is what reports state."""
    return AuditRequest.model_validate(audit.job.spec).membership is not None


def list_findings(audits: Sequence[StoredAudit]) -> tuple[AttackFinding, ...]:
    """Every attack on membership of the audits that have a result, in their order."""
    return tuple(
        copied(
            AttackFinding,
            attack.figures,
            audit=audit.job.id,
            target=describe(AuditRequest.model_validate(audit.job.spec).target),
            attack=attack.attack,
            source=attack.source,
        )
        for audit in audits
        if audit.result is not None
        for attack in AuditResult.model_validate(audit.result).attacks
    )
