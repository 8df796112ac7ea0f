"""A small typed client of the REST API: no torch, no database, nothing but HTTP (httpx2, the maintained
continuation of HTTPX: https://github.com/pydantic/httpx2), which is loaded when a client is first made.

    with Client("http://127.0.0.1:8000", api_key) as client:
        dataset = client.upload_dataset(Path("digits.npz"), epsilon=2.0)
        # It waits in state "review": its class names become public with its budget.
        print(dataset.review)
        client.confirm_dataset(dataset.id)
        job = client.submit(dataset.id, {"method": "moments", "epsilon": 1.0})
        for event in job.events():
            print(event.phase, event.value, event.epsilon_spent)
        job.download(Path("synthetic.parquet"))

`AsyncClient` has the same methods for asyncio, run in threads. What the service refuses is raised as `ClientError`,
which carries the problem document (RFC 9457), the request and its id in the service's log.
"""

from typing import TYPE_CHECKING

from datalens_service.base.lazy_names import load_names

if TYPE_CHECKING:
    from datalens_service.client.addresses import DEFAULT_URL, is_loopback
    from datalens_service.client.asynchronous import AsyncClient, AsyncJobHandle
    from datalens_service.client.client import Client
    from datalens_service.client.errors import ClientError, ServiceUnreachable
    from datalens_service.client.jobs import JobHandle
    from datalens_service.client.models import (
        Actor,
        ApprovalInfo,
        AuditInfo,
        BadFile,
        Budget,
        ClassifierInfo,
        Cost,
        DatasetInfo,
        DueInfo,
        Event,
        FileInfo,
        ImageSchema,
        IndividualEpsilon,
        Job,
        Joined,
        JournalEntry,
        LedgerEntry,
        NoticeInfo,
        PlanInfo,
        PredictionInfo,
        PredictionsInfo,
        QuotasInfo,
        Receipt,
        ReleaseInfo,
        ReleaseLinkInfo,
        RetentionDays,
        RetentionInfo,
        ReviewedClass,
        ReviewInfo,
        SharedRelease,
        TenantInfo,
        UploadedDataset,
        UploadInfo,
        ValidationInfo,
    )
    from datalens_service.client.requests import Audience, ClassifierFormat, Format, ReportAudience

__getattr__ = load_names(
    __name__,
    {
        "asynchronous": "AsyncClient AsyncJobHandle",
        "client": "Client",
        "errors": "ClientError ServiceUnreachable",
        "jobs": "JobHandle",
        "models": "Actor ApprovalInfo AuditInfo BadFile Budget ClassifierInfo Cost DatasetInfo DueInfo "
        "Event FileInfo ImageSchema IndividualEpsilon Job Joined JournalEntry LedgerEntry "
        "NoticeInfo PlanInfo PredictionInfo PredictionsInfo QuotasInfo Receipt ReleaseInfo "
        "ReleaseLinkInfo RetentionDays RetentionInfo ReviewedClass ReviewInfo SharedRelease TenantInfo "
        "UploadedDataset UploadInfo ValidationInfo",
        "requests": "Audience ClassifierFormat Format ReportAudience",
        "addresses": "DEFAULT_URL is_loopback",
    },
)

__all__ = [
    "DEFAULT_URL", "Actor", "ApprovalInfo", "AsyncClient", "AsyncJobHandle", "Audience", "AuditInfo", "BadFile",
    "Budget", "ClassifierFormat", "ClassifierInfo", "Client", "ClientError", "Cost", "DatasetInfo", "DueInfo", "Event",
    "FileInfo", "Format", "ImageSchema", "IndividualEpsilon", "Job", "JobHandle", "Joined", "JournalEntry",
    "LedgerEntry", "NoticeInfo", "PlanInfo", "PredictionInfo", "PredictionsInfo", "QuotasInfo", "Receipt",
    "ReleaseInfo", "ReleaseLinkInfo", "ReportAudience", "RetentionDays", "RetentionInfo", "ReviewInfo", "ReviewedClass",
    "ServiceUnreachable", "SharedRelease", "TenantInfo", "UploadInfo", "UploadedDataset", "ValidationInfo",
    "is_loopback",
]  # fmt: skip
