"""The calls of the REST API, one method each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

from pydantic import BaseModel

from datalens_service.client.replies import DatasetInfo, Job, PlanInfo
from datalens_service.client.transport import ServiceUnreachable, Transport, json_object, parsed

DEFAULT_URL = "http://127.0.0.1:8000"

Format = Literal["npz", "parquet", "imagefolder"]
Audience = Literal["owner", "releasable"]
Spec = BaseModel | Mapping[str, Any]
OnProgress = Callable[[Job], None]

# Reading, converting and fingerprinting a large upload takes the service longer than any other request.
_UPLOAD_SECONDS = 600.0
# The service may have to draw the images first.
_DOWNLOAD_SECONDS = 1900.0
_PAGE = 100


class Client:
    """A connection to one service.

    Args:
        url: Address of the service.
        api_key: A key made by `datalens serve` or `datalens keys create`.
        timeout: Seconds to wait for an answer; uploads get more.

    Every method raises `ClientError` where the service refuses, and its subclass `ServiceUnreachable` where nobody
    answers.

    Raises:
        ClientError: `url` is not an HTTP address.
    """

    def __init__(self, url: str = DEFAULT_URL, api_key: str = "", *, timeout: float = 60.0) -> None:
        self._transport = Transport(url, api_key, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def upload_dataset(
        self,
        path: Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        name: str | None = None,
        classes: tuple[str, ...] | None = None,
        records_per_unit: int | None = None,
        classes_per_unit: int | None = None,
        unit: str | None = None,
    ) -> DatasetInfo:
        """Upload an NPZ or a zip of class folders.

        Args:
            path: The file; its contents decide the format.
            epsilon: Lifetime budget of these records.
            delta: Of the budget; None takes min(1e-5, n^-1.1).
            name: For people; None leaves it to the service.
            classes: Class names; None leaves them to the format.
            records_per_unit: Most training images of one group, if the file groups its images.
            classes_per_unit: Most classes that one group reaches; None puts no further bound.
            unit: Word for one group, for example "patient".
        """
        given = {
            "epsilon": epsilon,
            "delta": delta,
            "name": name,
            "classes": ",".join(classes) if classes else None,
            "records_per_unit": records_per_unit,
            "classes_per_unit": classes_per_unit,
            "unit": unit,
        }
        fields = {key: str(value) for key, value in given.items() if value is not None}
        with path.open("rb") as file:
            reply = self._transport.request(
                "POST", "/v1/datasets", data=fields, files={"file": (path.name, file)}, timeout=_UPLOAD_SECONDS
            )
        return parsed(DatasetInfo, reply)

    def dataset(self, dataset_id: str) -> DatasetInfo:
        """One data set."""
        return parsed(DatasetInfo, self._transport.request("GET", f"/v1/datasets/{dataset_id}"))

    def datasets(self) -> Iterator[DatasetInfo]:
        """All data sets, newest first, fetched in portions."""
        return (DatasetInfo.model_validate(item) for item in self._items("/v1/datasets"))

    def delete_dataset(self, dataset_id: str) -> None:
        """Delete the records; what was spent on them stays on the books."""
        self._transport.request("DELETE", f"/v1/datasets/{dataset_id}")

    def plan(self, dataset_id: str, spec: Spec) -> PlanInfo:
        """What a job would cost; nothing is reserved."""
        body = {"dataset_id": dataset_id, "spec": _jsonable(spec)}
        return parsed(PlanInfo, self._transport.request("POST", "/v1/plans", json=body))

    def submit(self, dataset_id: str, spec: Spec, *, idempotency_key: str | None = None) -> Job:
        """Submit a job; its budget is reserved when this returns.

        Args:
            dataset_id: What to train on.
            spec: A `TrainingSpec` or its JSON form.
            idempotency_key: The same key with the same request is the same job; None draws a new one.
        """
        body = {"dataset_id": dataset_id, "spec": _jsonable(spec)}
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        return parsed(Job, self._transport.request("POST", "/v1/jobs", json=body, headers=headers))

    def get_job(self, job_id: str) -> Job:
        """One job as it is now."""
        return parsed(Job, self._transport.request("GET", f"/v1/jobs/{job_id}"))

    def jobs(self) -> Iterator[Job]:
        """All jobs, newest first, fetched in portions."""
        return (Job.model_validate(item) for item in self._items("/v1/jobs"))

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; what it has charged stays charged."""
        return parsed(Job, self._transport.request("POST", f"/v1/jobs/{job_id}:cancel"))

    def wait(
        self,
        job: Job | str,
        on_progress: OnProgress | None = None,
        *,
        interval: float = 1.0,
        patience: float = 30.0,
    ) -> Job:
        """Follow a job until it ends, however it ends: look at `state`.

        Args:
            job: The job or its id.
            on_progress: Called with the job after each look.
            interval: Seconds between two looks.
            patience: Seconds without an answer after which waiting is given up; the job goes on.

        Raises:
            ServiceUnreachable: Nobody answered for `patience` seconds.
        """
        job_id = job if isinstance(job, str) else job.id
        heard = time.monotonic()
        while True:
            try:
                current = self.get_job(job_id)
                heard = time.monotonic()
            except ServiceUnreachable:
                if time.monotonic() - heard > patience:
                    raise
            else:
                if on_progress is not None:
                    on_progress(current)
                if current.ended:
                    return current
            time.sleep(interval)

    def report(self, job_id: str, *, audience: Audience = "owner") -> dict[str, Any]:
        """The report of a succeeded job."""
        reply = self._transport.request(
            "GET", f"/v1/jobs/{job_id}/report", params={"audience": audience, "format": "json"}
        )
        return json_object(reply)

    def download_report(self, job_id: str, path: Path, *, audience: Audience = "owner") -> Path:
        """The same as one HTML file."""
        return self._transport.save(f"/v1/jobs/{job_id}/report", {"audience": audience, "format": "html"}, path)

    def download_samples(self, job_id: str, path: Path) -> Path:
        """PNG with samples of every class."""
        return self._transport.save(f"/v1/jobs/{job_id}/samples.png", {}, path)

    def download_generator(self, job_id: str, path: Path) -> Path:
        """The generator as safetensors."""
        return self._transport.save(f"/v1/jobs/{job_id}/generator", {}, path)

    def download(
        self, job_id: str, path: Path, *, format: Format = "npz", n: int | None = None, seed: int | None = None
    ) -> Path:
        """Synthetic images as a file; more images cost no privacy.

        Args:
            job_id: A succeeded job.
            path: Where to write; replaced once the download is complete.
            format: `npz`, `parquet` or `imagefolder` (a zip).
            n: How many; None takes what the job packed.
            seed: Repeats a draw; None takes from what the job packed as far as that goes.
        """
        given = {"format": format, "n": n, "seed": seed}
        wanted = {key: str(value) for key, value in given.items() if value is not None}
        return self._transport.save(f"/v1/jobs/{job_id}/synthetic", wanted, path, timeout=_DOWNLOAD_SECONDS)

    def _items(self, address: str) -> Iterator[dict[str, Any]]:
        params = {"limit": str(_PAGE)}
        while True:
            page = json_object(self._transport.request("GET", address, params=params))
            yield from page["items"]
            if not page["has_more"]:
                return
            params["after"] = page["next_cursor"]


def _jsonable(spec: Spec) -> dict[str, Any]:
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)
