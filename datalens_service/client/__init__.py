"""A small typed client of the REST API: no torch, no database, nothing but HTTP.

    with Client("http://127.0.0.1:8000", api_key) as client:
        dataset = client.upload_dataset(Path("digits.npz"), epsilon=2.0)
        job = client.submit(dataset.id, {"method": "moments", "epsilon": 1.0})
        for event in job.events():
            print(event.phase, event.value, event.epsilon_spent)
        job.download(Path("synthetic.parquet"))

`AsyncClient` has the same methods for asyncio. What the service refuses is raised as `ClientError`, which carries the
problem document (RFC 9457), the request and its id in the service's log.
"""

from datalens_service.client.async_client import AsyncClient
from datalens_service.client.calls import Audience, Format
from datalens_service.client.client import Client
from datalens_service.client.handles import AsyncLiveJob, LiveJob
from datalens_service.client.replies import (
    BadFile,
    Budget,
    Cost,
    DatasetInfo,
    Event,
    FileInfo,
    ImageSchema,
    Job,
    Joined,
    NoticeInfo,
    PlanInfo,
    Receipt,
    UploadedDataset,
    UploadInfo,
    ValidationInfo,
)
from datalens_service.client.transport import ClientError, ServiceUnreachable

__all__ = [
    "AsyncClient",
    "AsyncLiveJob",
    "Audience",
    "BadFile",
    "Budget",
    "Client",
    "ClientError",
    "Cost",
    "DatasetInfo",
    "Event",
    "FileInfo",
    "Format",
    "ImageSchema",
    "Job",
    "Joined",
    "LiveJob",
    "NoticeInfo",
    "PlanInfo",
    "Receipt",
    "ServiceUnreachable",
    "UploadInfo",
    "UploadedDataset",
    "ValidationInfo",
]
