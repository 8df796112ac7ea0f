"""Response bodies, as far as the client reads them. Members that a newer server adds are ignored.

Those of the service derive from them where they have the same members.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.fields import Stated

ENDED = frozenset({"succeeded", "failed", "cancelled"})
"""States in which a job stays for ever."""


class ResponseModel(BaseModel):
    """Members that a newer server adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class _Ending(ResponseModel):
    """Base of things that come to an end."""

    state: str

    @property
    def ended(self) -> bool:
        """Return True if nothing will change any more."""
        return self.state in ENDED


class Actor(ResponseModel):
    """A key, or a person who signs in elsewhere. "local" is a command on the machine of the service."""

    id: str
    name: str | None


class JournalEntry(ResponseModel):
    """An entry of the audit journal: who did what to which object, and what came of it."""

    seq: int
    at: datetime
    actor: str
    actor_name: str | None = None
    action: str
    object_id: str | None
    outcome: int
    detail: str
    previous_hash: str
    hash: str


class LedgerEntry(ResponseModel):
    """An entry of the ledger of an account. `submitted_by` is for keys that may read the audit journal."""

    seq: int
    at: datetime
    kind: str
    job_id: str | None = None
    submitted_by: Actor | None = None
    step: int | None = None
    label: str = ""
    units: int
    hash: str


class Budget(ResponseModel):
    """The lifetime account of a dataset: spends rounded up, what remains rounded down."""

    epsilon_limit: Stated
    delta: Stated
    epsilon_spent: Stated
    epsilon_reserved: Stated
    epsilon_remaining: Stated
    mu_spent: Stated


class ImageSchema(ResponseModel):
    """Facts that the owner declared public."""

    channels: int
    height: int
    width: int
    class_names: tuple[str, ...]
    num_units: int
    unit: str = "record"
    records_per_unit: int = 1
    classes_per_unit: int = 1
    records_are_public: bool = False
    public_license: str = ""
    preparation: dict[str, Any] | None = None


class ImageOrigin(ResponseModel):
    """A job that made a synthetic image."""

    job_id: str
    released_at: datetime


class ImageOriginList(ResponseModel):
    """The jobs that made a synthetic image."""

    items: tuple[ImageOrigin, ...]


class Joined(ResponseModel):
    """The account that an upload joined, because records of it were known. For the owner of the data alone."""

    known_records: int | None
    dataset_ids: tuple[str, ...]
    epsilon: Stated
    delta: Stated
    epsilon_spent: Stated
    epsilon_remaining: Stated


class DatasetInfo(ResponseModel):
    """A dataset as the service describes it; no record is in it."""

    id: str
    name: str
    tags: tuple[str, ...] = ()
    notes: str = ""
    state: str
    created_at: datetime
    image_schema: ImageSchema | None = Field(alias="schema")
    has_test_split: bool
    privacy: Budget | None
    guarantee: str = ""
    joined: Joined | None = None


class NoticeInfo(ResponseModel):
    """Says what was read otherwise than the owner may expect. Private."""

    code: str
    message: str
    count: int
    examples: tuple[str, ...] = ()


class ReviewedClass(ResponseModel):
    """A class of an upload with the number of its images. Private."""

    name: str
    train: int
    test: int


class ReviewInfo(ResponseModel):
    """Says how an upload was read, for its owner to confirm. Private: its class names become public with the budget."""

    classes: tuple[ReviewedClass, ...]
    unit: str
    num_units: int
    records_per_unit: int
    classes_per_unit: int
    width: int
    height: int
    channels: int
    train_images: int
    test_images: int
    ignored_files: int
    expires_at: datetime
    message: str


class UploadedDataset(DatasetInfo):
    """A dataset that was just uploaded, with what its owner should know. Notices and review are private."""

    notices: tuple[NoticeInfo, ...] = ()
    review: ReviewInfo | None = None


class UploadInfo(ResponseModel):
    """State of a resumable upload."""

    id: str
    length: int = Field(description="Bytes of the whole file.")
    offset: int = Field(description="Bytes that have arrived; the next chunk begins here.")
    complete: bool = Field(description="Whether a dataset can be made from it.")
    created_at: datetime
    expires_at: datetime = Field(
        description="When it is removed, unless more bytes arrive or a dataset is made from it."
    )


class BadFile(ResponseModel):
    """A file of an upload that cannot be used. Private."""

    name: str
    reason: str


class ValidationInfo(ResponseModel):
    """The result of reading an upload. Private: for the owner of the data alone."""

    dataset_id: str
    state: str
    counts: dict[str, Any] | None = None
    notices: tuple[NoticeInfo, ...] = ()
    review: ReviewInfo | None = None
    joined: Joined | None = None
    code: str | None = None
    detail: str | None = None
    bad_files: tuple[BadFile, ...] = ()
    bad_count: int = 0
    checked: int = 0


class Receipt(ResponseModel):
    """Lists what a deletion removed, and what stays."""

    dataset_id: str
    deleted_at: datetime
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    account_id: str | None
    entry: dict[str, Any] | None


class ClassifierInfo(ResponseModel):
    """A released classifier with its classes."""

    id: str
    name: str
    job_id: str = Field(description="The job that made it.")
    card: dict[str, Any] | None = Field(description="Its cost and its mechanisms. Left out of lists.")
    created_at: datetime


class PredictionInfo(ResponseModel):
    """The classifier's answer for one image."""

    file: str | None = Field(description="Its name in the archive; null where it has none.")
    class_name: str = Field(description="The most probable class.")
    probabilities: tuple[float, ...] = Field(description="Probabilities in the order of `class_names`; they sum to 1.")


class PredictionsInfo(ResponseModel):
    """The classifier's answer for each image, in order."""

    class_names: tuple[str, ...]
    items: tuple[PredictionInfo, ...]


class IndividualEpsilon(ResponseModel):
    """The privacy loss that a job happened to cost one record. For whoever holds the record."""

    epsilon: Stated
    epsilon_of_job: Stated
    delta: Stated
    steps: int
    meaning: str


class FileInfo(ResponseModel):
    """A file that a job made."""

    name: str
    media_type: str
    size: int = Field(description="Size in bytes.")
    sha256: str = Field(description="SHA-256 of its content, hexadecimal; also its ETag.")
    audience: Literal["anyone", "owner"]


class FileList(ResponseModel):
    """All files of a job that the key may see."""

    items: tuple[FileInfo, ...]


class ReleaseWords(ResponseModel):
    """A release in words, without links."""

    id: str
    kind: str = Field(description="`generator` or `classifier`.")
    title: str = Field(description="Public name; made of public values until `PATCH` sets one.")
    license: str = Field(description="SPDX id of the terms for whoever gets it by a link; `other`: none was chosen.")
    created_at: datetime
    class_names: tuple[str, ...]
    width: int
    height: int
    channels: int
    made: str = Field(description="What it is: method, private images, public inputs, looks. Empty if imported.")
    usefulness: str = Field(description="The verdict on figures that are public or covered by the guarantee.")
    promise: str = Field(description="The guarantee in words. Empty if imported.")
    guarantee: str = Field(description="The guarantee with ε and δ. Empty if imported: its cost is unknown here.")


class ReleaseInfo(ReleaseWords):
    """A release in words; nothing in it is private."""

    links: dict[str, str | None] = {}

    @property
    def job_id(self) -> str | None:
        """Return the id of the job that made it; None for an imported one."""
        job = self.links.get("job")
        return job and job.rpartition("/")[2]


class ReleaseLinkInfo(ResponseModel):
    """A link of one partner to one release."""

    id: str
    release_id: str
    partner: str
    key_id: str = Field(description="The key that made it; the link ends when that is revoked.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    ended: bool = Field(description="Whether it no longer works.")
    last_used_at: datetime | None = None


class ReleaseLinkList(ResponseModel):
    """All links of a release."""

    items: tuple[ReleaseLinkInfo, ...]


class SharedRelease(ResponseModel):
    """A link that was just made, with its address, which is shown this once."""

    link: ReleaseLinkInfo
    url: str


class Cost(ResponseModel):
    """The cost of a run, known before it starts."""

    method: str = ""
    images: int
    steps: int
    mu: Stated
    epsilon_at_plan: Stated
    epsilon_replace_one: Stated
    delta: Stated
    epsilon_limit: Stated
    releases: tuple[dict[str, Any], ...] = ()
    unit: str | None = None
    records_per_unit: int = 1
    guarantee: str = ""
    risk: str = ""
    phase_seconds: dict[str, float] = {}
    kept_bytes: int = 0
    warnings: tuple[str, ...] = ()
    rationale: str = ""


class Expectation(ResponseModel):
    """The range that jobs like one that is planned have reached."""

    accuracy_low: float
    accuracy_high: float
    training_seconds: float
    basis: str
    warning: str
    measured: bool = True
    memory_bytes: int = 0
    disk_bytes: int = 0
    class_averages_low: float = 0.0
    class_averages_high: float = 100.0
    guessing: float = 0.0
    accuracy_middle: float = 0.0
    averaged: bool = True
    real_low: float = 0.0
    real_high: float = 100.0
    looks: str | None = None
    verdict: str = ""


class Alternative(ResponseModel):
    """A method that could serve a dataset, at the ε of a planned job."""

    choices: tuple[str, ...]
    title: str
    method: str
    default: bool
    needs_public_images: bool
    accuracy_low: float
    accuracy_high: float
    measured: bool
    looks: str | None
    training_seconds: float
    memory_bytes: int
    accuracy_middle: float = 0.0
    best_for_labels: bool = False


class Target(ResponseModel):
    """The least ε that is expected to reach a wanted accuracy."""

    accuracy: float
    epsilon: Stated
    accuracy_low: float
    accuracy_high: float
    units: int | None
    risk: str
    sentence: str


class Comparison(ResponseModel):
    """Methods side by side, and why the default is the default."""

    methods: tuple[Alternative, ...]
    reason: str


class PlanInfo(ResponseModel):
    """The price of a job, and whether the dataset's account pays for it."""

    spec: dict[str, Any]
    cost: Cost
    fits: bool
    budget: Budget
    budget_after: Budget | None
    expectation: Expectation | None = None
    comparison: Comparison | None = None
    target: Target | None = None


class Progress(ResponseModel):
    """Says how far a phase of a job is."""

    phase: str | None
    value: int
    maximum: int
    eta_seconds: int | None = None


class JobPrivacy(ResponseModel):
    """The budget that a job has spent so far."""

    epsilon_spent: Stated
    epsilon_limit: Stated
    delta: Stated
    mu: Stated
    guarantee: str = ""


class Event(_Ending):
    """Something that happened to a job, in public numbers; the last one has ended."""

    id: int
    type: str
    phase: str | None
    value: int
    maximum: int
    epsilon_spent: Stated
    delta: Stated
    created_at: datetime


class AuditInfo(_Ending):
    """An audit as it was when it was read. `result` is private: for the owner of the records alone."""

    id: str
    dataset_id: str
    target: dict[str, Any]
    attacks: tuple[str, ...]
    references: int
    progress: Progress
    submitted_by: Actor | None = None
    created_at: datetime
    finished_at: datetime | None
    waiting_reason: str | None = None
    error: dict[str, Any] | None
    result: dict[str, Any] | None
    links: dict[str, str | None] = {}


class ApprovalInfo(ResponseModel):
    """The decision of a second person about the result of a job."""

    state: Literal["waiting", "released", "withheld"]
    decided_at: datetime | None
    reason: str | None


class Job(_Ending):
    """A job as it was when it was read."""

    id: str
    dataset_id: str
    name: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    phase: str | None
    progress: Progress
    attempts: int
    priority: int = 5
    spec: dict[str, Any]
    cost: Cost
    privacy: JobPrivacy
    submitted_by: Actor | None = None
    created_at: datetime
    started_at: datetime | None
    released_at: datetime | None = None
    """The time at which its images became ready; they may still be measured. None until then."""
    finished_at: datetime | None
    waiting_reason: str | None = None
    approval: ApprovalInfo | None = None
    error: dict[str, Any] | None
    links: dict[str, str | None] = {}
    """Addresses of possible actions and of results."""


class RetentionDays(ResponseModel):
    """Days for which things are kept; None is for ever."""

    datasets: int | None = None
    results: int | None = None
    uploads: int | None = None
    events: int | None = None
    deliveries: int | None = None
    journal: int | None = None


class RetentionInfo(ResponseModel):
    """The policies of the installation and of the tenant. Of each kind the shorter time counts."""

    everywhere: RetentionDays
    own: RetentionDays
    effective: RetentionDays


class DueInfo(ResponseModel):
    """Something that retention removes. Lines go together, and have no id."""

    kind: str = Field(description="`datasets`, `results`, `uploads`, `events`, `deliveries` or `journal`.")
    object_id: str | None = Field(description="Its id; null of lines, which go together.")
    count: int = Field(description="How many lines are old enough; 1 of everything else.")
    at: datetime = Field(description="When it goes; of lines, when the oldest one does.")
    waits_for: str | None = Field(description="A job that has not ended and reads it; it goes once that has.")


class QuotasInfo(ResponseModel):
    """Limits of a tenant, at once; None is no limit."""

    bytes: int | None = None
    datasets: int | None = None
    jobs: int | None = None
    requests_per_minute: int | None = None


class TenantInfo(ResponseModel):
    """A tenant as the operator sees it. The receipt is there once it was removed."""

    id: str
    name: str
    created_at: datetime
    removing_since: datetime | None
    removed_at: datetime | None
    quotas: QuotasInfo
    retention: RetentionDays
    receipt: dict[str, Any] | None
