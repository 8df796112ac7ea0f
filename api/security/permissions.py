"""The table of permissions: the scope that each operation needs, and whether it goes onto the audit journal.

An operation that is missing here is for owners only and is audited; a test demands that none is missing.
"""

from dataclasses import dataclass
from typing import Final, Literal

from datalens_service.base.errors import Forbidden
from datalens_service.proof.spenders import Actor
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import Role, Scope
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.schema.tables import DEFAULT_TENANT


@dataclass(frozen=True)
class Rule:
    """Permission that an operation needs.

    Attributes:
        scope: That the key must hold; None is for owners only.
        audited: True if every call is noted. Reads of public numbers are not, and neither is what the ledger of a
            dataset notes anyway.
        cross_tenant: True if the answer is about all tenants: then it is for keys of the first one, which runs the
            service.
        shows: Private reads (`private_reads.py`) that it makes, or shows the outcome of.
        result: The part of what a job made that it hands out, of the object in its path. While a second person has not
            released that, "review" is for those who decide, and "release" for nobody.
    """

    scope: Scope | None
    audited: bool = True
    cross_tenant: bool = False
    shows: tuple[str, ...] = ()
    result: Literal["", "review", "release"] = ""

    def __post_init__(self) -> None:
        # Whatever else those operations do that need one of these scopes, they hand out results.
        if not self.result and self.scope in (Scope.RELEASES_READ, Scope.RELEASES_WRITE):
            object.__setattr__(self, "result", "release")


_UNKNOWN: Final = Rule(None)
_LINKS: Final = "recognising records that come again"
# Those of the owner's report, which is a file, and framed by a page.
_FIGURES: Final = (
    "figures on test images",
    "figures of the classifier on test images",
    "baselines and figures of training images",
    "fidelity",
)

RULES: Final[dict[str, Rule]] = {
    "createDataset": Rule(Scope.DATASETS_WRITE, shows=("reading the upload", _LINKS)),
    "createDatasetFromUpload": Rule(Scope.DATASETS_WRITE, shows=("reading the upload", _LINKS)),
    "confirmDataset": Rule(Scope.DATASETS_WRITE, shows=("reading the upload", _LINKS)),
    "createEncoder": Rule(Scope.DATASETS_WRITE),
    "listDatasets": Rule(Scope.DATASETS_READ, audited=False),
    "getDataset": Rule(Scope.DATASETS_READ, audited=False),
    "updateDataset": Rule(Scope.DATASETS_WRITE),
    "deleteDataset": Rule(Scope.DATASETS_WRITE),
    # Both show what depends on the records themselves.
    "getDatasetValidation": Rule(Scope.DATASETS_WRITE, shows=("reading the upload",)),
    "getDatasetPreview": Rule(Scope.DATASETS_WRITE, shows=("pictures of the upload",)),
    "getUploadOptions": Rule(Scope.DATASETS_WRITE, audited=False),
    "createUpload": Rule(Scope.DATASETS_WRITE),
    "getUploadOffset": Rule(Scope.DATASETS_WRITE, audited=False),
    "getUpload": Rule(Scope.DATASETS_WRITE, audited=False),
    # One entry per upload is enough, not one per chunk.
    "appendToUpload": Rule(Scope.DATASETS_WRITE, audited=False),
    "deleteUpload": Rule(Scope.DATASETS_WRITE),
    "getDatasetPrivacy": Rule(Scope.DATASETS_READ, audited=False, shows=(_LINKS,)),
    "listDatasetPrivacyEntries": Rule(Scope.DATASETS_READ, audited=False, shows=(_LINKS,)),
    # Noted with its reason, in the transaction that raises.
    "raiseDatasetPrivacy": Rule(Scope.PRIVACY_RAISE, audited=False),
    "createPlan": Rule(Scope.JOBS_READ, audited=False),
    # The ledger notes what was reserved, the audit journal by whom.
    "createJob": Rule(Scope.JOBS_WRITE),
    "cloneJob": Rule(Scope.JOBS_WRITE),
    "listJobs": Rule(Scope.JOBS_READ, audited=False),
    "getJob": Rule(Scope.JOBS_READ, audited=False),
    "listJobEvents": Rule(Scope.JOBS_READ, audited=False),
    "updateJob": Rule(Scope.JOBS_WRITE),
    "cancelJob": Rule(Scope.JOBS_WRITE),
    "pauseJob": Rule(Scope.JOBS_WRITE),
    "resumeJob": Rule(Scope.JOBS_WRITE),
    # Noted with its reason, in the transaction that decides.
    "releaseJob": Rule(Scope.RELEASES_APPROVE, audited=False),
    "withholdJob": Rule(Scope.RELEASES_APPROVE, audited=False),
    # Findings of attacks depend on the records. To start or end one, `jobs:write` is needed as well.
    "createAudit": Rule(Scope.REPORTS_READ),
    "listAudits": Rule(Scope.REPORTS_READ, shows=("attacks",)),
    "getAudit": Rule(Scope.REPORTS_READ, shows=("attacks",)),
    "getAuditPicture": Rule(Scope.REPORTS_READ, shows=("attacks",)),
    "cancelAudit": Rule(Scope.REPORTS_READ),
    "getJobReport": Rule(Scope.RELEASES_READ, shows=(*_FIGURES, _LINKS), result="review"),
    "getJobBundle": Rule(Scope.RELEASES_READ, shows=(_LINKS,)),
    "getJobSamples": Rule(Scope.RELEASES_READ, result="review"),
    "getJobSynthetic": Rule(Scope.RELEASES_READ),
    "getJobDataset": Rule(Scope.RELEASES_READ),
    "getJobGenerator": Rule(Scope.RELEASES_READ),
    "listJobArtifacts": Rule(Scope.RELEASES_READ, audited=False, shows=(*_FIGURES, _LINKS), result="review"),
    "getJobArtifact": Rule(Scope.RELEASES_READ, shows=(*_FIGURES, _LINKS)),
    "createDownloadAddress": Rule(Scope.RELEASES_WRITE),
    "listReleases": Rule(Scope.RELEASES_READ, audited=False),
    "getRelease": Rule(Scope.RELEASES_READ, audited=False),
    "updateRelease": Rule(Scope.RELEASES_WRITE),
    "createReleaseLink": Rule(Scope.RELEASES_WRITE),
    "listReleaseLinks": Rule(Scope.RELEASES_WRITE, audited=False),
    "getReleaseLink": Rule(Scope.RELEASES_WRITE, audited=False),
    "revokeReleaseLink": Rule(Scope.RELEASES_WRITE),
    "listReleasedImages": Rule(Scope.RELEASES_READ, audited=False),
    "listGenerators": Rule(Scope.RELEASES_READ, audited=False),
    "getGenerator": Rule(Scope.RELEASES_READ, audited=False),
    "getGeneratorFile": Rule(Scope.RELEASES_READ),
    "createGeneratorSamples": Rule(Scope.RELEASES_READ),
    "importGenerator": Rule(Scope.RELEASES_WRITE),
    "deleteGenerator": Rule(Scope.RELEASES_WRITE),
    "getJobClassifier": Rule(Scope.RELEASES_READ),
    "getJobClassifierOnnx": Rule(Scope.RELEASES_READ),
    "getJobClassifierArchive": Rule(Scope.RELEASES_READ),
    "listClassifiers": Rule(Scope.RELEASES_READ, audited=False),
    "getClassifier": Rule(Scope.RELEASES_READ, audited=False),
    # Individual epsilon is for the owner, who holds the records. Who asked and when; of the image nothing.
    "createIndividualEpsilon": Rule(Scope.REPORTS_READ, result="release"),
    "createIndividualEpsilonFromPixels": Rule(Scope.REPORTS_READ, result="release"),
    # The journal has who predicted and when, and nothing of the images.
    "createPredictions": Rule(Scope.RELEASES_READ),
    "createPredictionsFromPixels": Rule(Scope.RELEASES_READ),
    "createApiKey": Rule(Scope.KEYS_WRITE),
    "listApiKeys": Rule(Scope.KEYS_WRITE, audited=False),
    "getApiKey": Rule(Scope.KEYS_WRITE, audited=False),
    "rotateApiKey": Rule(Scope.KEYS_WRITE),
    "revokeApiKey": Rule(Scope.KEYS_WRITE),
    "createWebhook": Rule(Scope.WEBHOOKS_WRITE),
    "listWebhooks": Rule(Scope.WEBHOOKS_WRITE, audited=False),
    "getWebhook": Rule(Scope.WEBHOOKS_WRITE, audited=False),
    "updateWebhook": Rule(Scope.WEBHOOKS_WRITE),
    "deleteWebhook": Rule(Scope.WEBHOOKS_WRITE),
    "rotateWebhookSecret": Rule(Scope.WEBHOOKS_WRITE),
    "testWebhook": Rule(Scope.WEBHOOKS_WRITE),
    "listWebhookDeliveries": Rule(Scope.WEBHOOKS_WRITE, audited=False),
    "redeliverWebhookDelivery": Rule(Scope.WEBHOOKS_WRITE),
    "getMetrics": Rule(Scope.USAGE_READ, audited=False, cross_tenant=True),
    "getUsage": Rule(Scope.USAGE_READ, audited=False),
    "listAuditEntries": Rule(Scope.AUDIT_READ, audited=False),
    "getRetention": Rule(Scope.USAGE_READ, audited=False),
    "listDueRemovals": Rule(Scope.DATASETS_READ, audited=False),
    # Noted with their days or numbers, in the transaction that sets them.
    "updateRetention": Rule(None, audited=False),
    "updateInstallationRetention": Rule(None, audited=False, cross_tenant=True),
    "updateTenantQuotas": Rule(None, audited=False, cross_tenant=True),
    "listTenants": Rule(None, audited=False, cross_tenant=True),
    "getTenant": Rule(None, audited=False, cross_tenant=True),
    "deleteTenant": Rule(None, audited=False, cross_tenant=True),
    # The pages: what they change is a request of its own to the operations above.
    "showDatasets": Rule(Scope.DATASETS_READ, audited=False),
    "showUploadForm": Rule(Scope.DATASETS_WRITE, audited=False),
    "showDataset": Rule(
        Scope.DATASETS_READ, audited=False, shows=("attacks", "reading the upload", "pictures of the upload", _LINKS)
    ),
    "showPlanForm": Rule(Scope.JOBS_READ, audited=False),
    "showPlan": Rule(Scope.JOBS_READ, audited=False),
    "showJobs": Rule(Scope.JOBS_READ, audited=False, shows=_FIGURES),
    "showJob": Rule(Scope.JOBS_READ, audited=False, shows=("attacks", *_FIGURES, "pictures of the upload")),
    # The page notes that figures of attacks were seen.
    "showAudit": Rule(Scope.REPORTS_READ, audited=False, shows=("attacks",)),
    "showJobSamples": Rule(Scope.JOBS_READ, audited=False, result="review"),
    # The page notes that private figures were seen.
    "showJobComparison": Rule(Scope.JOBS_READ, audited=False, shows=_FIGURES),
    "showJobImages": Rule(Scope.JOBS_READ, audited=False, result="release"),
    "showJobImagesPicture": Rule(Scope.JOBS_READ, audited=False, result="release"),
    "showJobReport": Rule(Scope.JOBS_READ, audited=False, shows=_FIGURES, result="review"),
    "showReleases": Rule(Scope.RELEASES_READ, audited=False),
    "showReleaseLinks": Rule(Scope.RELEASES_WRITE, audited=False),
    "showApiKeys": Rule(Scope.KEYS_WRITE, audited=False),
    "showWebhooks": Rule(Scope.WEBHOOKS_WRITE, audited=False),
    "showWebhook": Rule(Scope.WEBHOOKS_WRITE, audited=False),
    "showAuditEntries": Rule(Scope.AUDIT_READ, audited=False),
    "showUsage": Rule(Scope.USAGE_READ, audited=False),
    "showRetention": Rule(None, audited=False),
    "showTenants": Rule(None, audited=False, cross_tenant=True),
}
"""By operation id."""


def find_rule(operation: str | None) -> Rule:
    return RULES.get(operation or "", _UNKNOWN)


def check_allowed(key: ApiKey, operation: str | None) -> None:
    """Refuse a key that does not reach as far as an operation."""
    rule = find_rule(operation)
    scope = rule.scope
    if rule.cross_tenant and key.tenant_id != DEFAULT_TENANT:
        raise Forbidden("This is about all tenants and for keys of the first one; your own usage is at ⟦usage⟧.")
    if scope is None and key.role is not Role.OWNER:
        raise Forbidden("This operation is for keys of the role owner.")
    if scope is not None:
        check_scope(key, scope)


def is_closed(key: ApiKey, rule: Rule) -> bool:
    """Tell whether a result that a second person has not released is closed to a key, for this operation."""
    return rule.result == "release" or (rule.result == "review" and Scope.RELEASES_APPROVE not in key.scopes)


def check_scope(key: ApiKey, scope: Scope) -> None:
    """Refuse a key that does not hold `scope`."""
    if scope not in key.scopes:
        raise Forbidden(f"This key lacks the scope {scope}.")


def check_may_see_private(key: ApiKey) -> None:
    """Refuse values that the guarantee does not cover to everybody but the owner."""
    if Scope.REPORTS_READ not in key.scopes:
        raise Forbidden("What is for the owner alone needs the scope reports:read; choose ⟦to_share⟧ instead.")


def may_see_persons(key: ApiKey) -> bool:
    """Return True for keys that may know who did what: those that may read the audit journal."""
    return Scope.AUDIT_READ in key.scopes


def show_submitter(job: Job, key: ApiKey) -> Actor | None:
    """Return who submitted a job, for those who may know it; None for all others, and where it was not recorded."""
    return job.submitted_by if may_see_persons(key) else None
