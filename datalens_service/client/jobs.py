"""Requests about jobs, and a handle for one job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pydantic import PrivateAttr, ValidationError

from datalens_service.base.audience import ReportAudience
from datalens_service.client import requests
from datalens_service.client.earlier_names import accept_earlier_names
from datalens_service.client.errors import ServiceUnreachable
from datalens_service.client.models import Event, FileInfo, FileList, ImageOrigin, ImageOriginList, Job, PlanInfo
from datalens_service.client.requests import Format, ReleaseMode, Spec
from datalens_service.client.responses import parse_object
from datalens_service.client.retry_policy import RetryPolicy
from datalens_service.client.transport import Transport

OnProgress = Callable[[Job], None]


class EventParser:
    """Builds events from the lines of a stream (Server-Sent Events).

    Attributes:
        ended: True if the job has ended, so that no event follows.
    """

    def __init__(self, last_id: int) -> None:
        self.last_id = last_id
        self.ended = False
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[Event]:
        """Take one line; yield the event that it completes, if any."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            try:
                event = Event.model_validate_json(data)
            except ValidationError:
                return
            self.last_id, self.ended = event.id, event.ended
            yield event

    def restart(self) -> None:
        """Drop the incomplete event of a connection that broke."""
        self._data = []


class JobHandle(Job):
    """A job as it was when it was read, with methods that act on it."""

    _client: JobOperations = PrivateAttr()

    @classmethod
    def bind(cls, job: Job, client: JobOperations) -> Self:
        """A handle that calls `client`."""
        handle = cls.model_validate(job.model_dump())
        handle._client = client
        return handle

    def refresh(self) -> JobHandle:
        """The job as it is now."""
        return self._client.get_job(self.id)

    def wait(self, on_progress: OnProgress | None = None) -> JobHandle:
        """Follow it until it ends, however it ends: look at `state`."""
        return self._client.wait(self.id, on_progress)

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Past and future events, until it ends; interruptions are bridged."""
        return self._client.events(self.id, after=after)

    def cancel(self) -> JobHandle:
        """Ask it to stop; what it has charged stays charged."""
        return self._client.cancel(self.id)

    def report(self, *, audience: ReportAudience = "owner") -> dict[str, Any]:
        """Return its report, once it has succeeded."""
        return self._client.report(self.id, audience=audience)

    @accept_earlier_names(n="synthetic_images")
    def download(
        self,
        path: Path,
        *,
        format: Format = "parquet",
        synthetic_images: int | None = None,
        per_class: int | None = None,
        classes: Sequence[str] = (),
        seed: int | None = None,
    ) -> Path:
        """Download its synthetic images as a file."""
        return self._client.download(
            self.id,
            path,
            format=format,
            synthetic_images=synthetic_images,
            per_class=per_class,
            classes=classes,
            seed=seed,
        )


class JobOperations:
    """Methods of the client about jobs."""

    _transport: Transport

    def plan(self, dataset_id: str, spec: Spec, *, accuracy: float | None = None) -> PlanInfo:
        """Return what a job would cost; nothing is reserved.

        Args:
            spec: A `TrainingSpec` or its JSON form.
            accuracy: Wanted percentage of right labels: `target` then has the least ε that is expected to reach it.
        """
        body = {"dataset_id": dataset_id, "spec": requests.encode_spec(spec), "accuracy": accuracy}
        return self._transport.send("POST", "/v1/plans", PlanInfo, {"json": requests.drop_unset(body)})

    def submit(
        self,
        dataset_id: str,
        spec: Spec,
        *,
        priority: int | None = None,
        release: ReleaseMode | None = None,
        idempotency_key: str | None = None,
        accept_low_utility: bool = False,
    ) -> JobHandle:
        """Submit a job; its budget is reserved when this returns.

        Args:
            spec: A `TrainingSpec` or its JSON form.
            priority: From 0 to 9: of jobs that wait, higher ones are taken first. None is that of most jobs, 5.
            release: With "after_approval" its result is handed out once a second person has released it; None and
                "at_once" hand it out when it is ready.
            idempotency_key: The same key with the same request is the same job; None draws a new one.
            accept_low_utility: True if budget may be spent although the plan has a warning.
        """
        body = {
            "dataset_id": dataset_id,
            "spec": requests.encode_spec(spec),
            "priority": priority,
            "release": release,
            "accept_low_utility": accept_low_utility,
        }
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        return self._send("POST", "/v1/jobs", {"json": requests.drop_unset(body), "headers": headers})

    def get_job(self, job_id: str) -> JobHandle:
        """Return a job as it is now."""
        return self._send("GET", f"/v1/jobs/{job_id}")

    def jobs(self) -> Iterator[JobHandle]:
        """Yield all jobs, newest first, fetched page by page."""
        return (JobHandle.bind(job, self) for job in self._transport.iter_items("/v1/jobs", Job))

    def update_job(
        self, job_id: str, *, name: str | None = None, tags: Sequence[str] | None = None, notes: str | None = None
    ) -> JobHandle:
        """Name, tag or annotate a job; what is None stays as it is."""
        return self._send("PATCH", f"/v1/jobs/{job_id}", requests.encode_labels(name, tags, notes))

    def cancel(self, job_id: str) -> JobHandle:
        """Ask a job to stop; what it has charged stays charged."""
        return self._send("POST", f"/v1/jobs/{job_id}:cancel")

    def release_job(self, job_id: str, *, reason: str) -> JobHandle:
        """Release a result that waits for a second person; whoever submitted the job is refused.

        Args:
            reason: Words for the audit journal, and for whoever submitted the job.
        """
        return self._send("POST", f"/v1/jobs/{job_id}:release", {"json": {"reason": reason}})

    def withhold_job(self, job_id: str, *, reason: str) -> JobHandle:
        """Withhold a result from everybody; nothing is refunded, and copies stay where they are.

        Args:
            reason: Words for the audit journal, and for whoever submitted the job.
        """
        return self._send("POST", f"/v1/jobs/{job_id}:withhold", {"json": {"reason": reason}})

    def pause(self, job_id: str) -> JobHandle:
        """Ask a job to pause; it keeps its reservation and its progress."""
        return self._send("POST", f"/v1/jobs/{job_id}:pause")

    def resume(self, job_id: str) -> JobHandle:
        """Resume a paused job."""
        return self._send("POST", f"/v1/jobs/{job_id}:resume")

    def wait(
        self, job: Job | str, on_progress: OnProgress | None = None, *, interval: float = 1.0, patience: float = 30.0
    ) -> JobHandle:
        """Follow a job until it ends, however it ends: look at `state`.

        Args:
            patience: Seconds without a response after which waiting is given up; the job goes on.
        """
        job_id = job if isinstance(job, str) else job.id
        for current in RetryPolicy(patience, interval).poll(lambda: self.get_job(job_id), interval):
            if on_progress is not None:
                on_progress(current)
            if current.ended:
                break
        return current

    def events(self, job_id: str, *, after: int = 0, patience: float = 60.0) -> Iterator[Event]:
        """Past and future events of a job, until it ends. Interruptions are bridged.

        Args:
            after: Number of the last event that is known.
            patience: Seconds without a response after which following is given up; the job goes on.
        """
        parser, retry_policy = EventParser(after), RetryPolicy(patience)
        while not parser.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(parser.last_id)}
            broken = ServiceUnreachable("The stream of events ended repeatedly before the job did.")
            try:
                for line in self._transport.iter_lines(f"/v1/jobs/{job_id}/events", headers):
                    retry_policy.reset()
                    yield from parser.feed(line)
            except ServiceUnreachable as error:
                broken = error
            parser.restart()
            if not parser.ended:
                time.sleep(retry_policy.choose_delay(broken))

    def report(self, job_id: str, *, audience: ReportAudience = "owner") -> dict[str, Any]:
        """The report of a succeeded job."""
        options = {"params": {"audience": audience, "format": "json"}}
        return parse_object(self._transport.respond("GET", f"/v1/jobs/{job_id}/report", options))

    def download_report(self, job_id: str, path: Path, *, audience: ReportAudience = "owner") -> Path:
        """The same as one HTML file."""
        return self._transport.save(f"/v1/jobs/{job_id}/report", {"audience": audience, "format": "html"}, path)

    def find_images(self, pixel_hash: str) -> tuple[ImageOrigin, ...]:
        """Return the jobs that packed a synthetic image, oldest first; that there is none proves nothing.

        Args:
            pixel_hash: 64 hexadecimal digits, as `datalens_service.data.export.pixel_hashes.hash_pixels` makes them.
        """
        url_path = f"/v1/released-images?pixel_hash={pixel_hash}"
        return self._transport.send("GET", url_path, ImageOriginList).items

    def files(self, job_id: str) -> tuple[FileInfo, ...]:
        """The files of a job that the key may see, each with its audience."""
        return self._transport.send("GET", f"/v1/jobs/{job_id}/artifacts", FileList).items

    def download_file(self, job_id: str, name: str, path: Path) -> Path:
        """Download one of the files of a job."""
        return self._transport.save(f"/v1/jobs/{job_id}/artifacts/{name}", {}, path)

    def download_samples(self, job_id: str, path: Path) -> Path:
        """PNG with samples of every class."""
        return self._transport.save(f"/v1/jobs/{job_id}/samples.png", {}, path)

    def download_generator(self, job_id: str, path: Path) -> Path:
        """The generator as safetensors."""
        return self._transport.save(f"/v1/jobs/{job_id}/generator", {}, path)

    @accept_earlier_names(n="synthetic_images")
    def download(
        self,
        job_id: str,
        path: Path,
        *,
        format: Format = "npz",
        synthetic_images: int | None = None,
        per_class: int | None = None,
        classes: Sequence[str] = (),
        seed: int | None = None,
    ) -> Path:
        """Synthetic images as a file; more images cost no privacy.

        Args:
            job_id: A job whose images are ready (`Job.released_at`); they may still be measured.
            path: Path of the file, which is replaced once the download is complete.
            format: "npz", "parquet", "imagefolder" (a zip) or "webdataset" (a tar).
            synthetic_images: Number of images; None takes those that the job packed.
            per_class: Number of images of each class, instead.
            classes: Names of classes, or their numbers in label order, which take turns; empty takes all.
            seed: Repeats a draw; None takes from what the job packed as far as that goes.
        """
        amount = {"synthetic_images": synthetic_images, "per_class": per_class, "classes": list(classes) or None}
        params = requests.encode_query({"format": format, **amount, "seed": seed})
        url_path = f"/v1/jobs/{job_id}/synthetic"
        return self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)

    @accept_earlier_names(n="synthetic_images")
    def download_bundle(
        self,
        job_id: str,
        path: Path,
        *,
        format: Format = "parquet",
        synthetic_images: int | None = None,
        per_class: int | None = None,
        classes: Sequence[str] = (),
        seed: int | None = None,
        title: str | None = None,
        license: str = "other",
    ) -> Path:
        """The same as a zip that is ready to be published: card, licence, checksums, Croissant, proof of privacy.

        Args:
            title: Public name of the dataset.
            license: SPDX id, for example CC-BY-4.0; `other` chooses none.
        """
        amount = {"synthetic_images": synthetic_images, "per_class": per_class, "classes": list(classes) or None}
        params = requests.encode_query(amount | {"format": format, "seed": seed, "title": title, "license": license})
        url_path = f"/v1/jobs/{job_id}/dataset"
        return self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)

    def _send(self, method: str, path: str, options: Mapping[str, Any] | None = None) -> JobHandle:
        return JobHandle.bind(self._transport.send(method, path, Job, options), self)
