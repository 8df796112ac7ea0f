"""A small typed client of the REST API: no torch, no database, nothing but HTTP.

    with Client("http://127.0.0.1:8000", api_key) as client:
        dataset = client.upload_dataset(Path("digits.npz"), epsilon=2.0)
        job = client.wait(client.submit(dataset.id, {"method": "moments", "epsilon": 1.0}))
        client.download(job.id, Path("synthetic.parquet"), format="parquet")

What the service refuses is raised as `ClientError`, which carries the problem document (RFC 9457).
"""

from datalens_service.client.client import Audience, Client, Format
from datalens_service.client.replies import Budget, Cost, DatasetInfo, ImageSchema, Job, PlanInfo
from datalens_service.client.transport import ClientError, ServiceUnreachable

__all__ = [
    "Audience",
    "Budget",
    "Client",
    "ClientError",
    "Cost",
    "DatasetInfo",
    "Format",
    "ImageSchema",
    "Job",
    "PlanInfo",
    "ServiceUnreachable",
]
