"""Requests about jobs, and a handle for one job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from datalens_service.client import requests
from datalens_service.client._async.transport import AsyncTransport
from datalens_service.client.errors import ServiceUnreachable
from datalens_service.client.event_stream import EventParser
from datalens_service.client.models import Event, FileInfo, Job, PlanInfo
from datalens_service.client.requests import Audience, Format, Request, Spec
from datalens_service.client.retry_policy import RetryPolicy

OnProgress = Callable[[Job], None]


class AsyncJobHandle(Job):
    """A job as it was when it was read, with methods that act on it."""

    _client: AsyncJobOperations = PrivateAttr()

    @classmethod
    def bind(cls, job: Job, client: AsyncJobOperations) -> Self:
        """A handle that calls `client`."""
        handle = cls.model_validate(job.model_dump())
        handle._client = client
        return handle

    async def refresh(self) -> AsyncJobHandle:
        """The job as it is now."""
        return await self._client.get_job(self.id)

    async def wait(self, on_progress: OnProgress | None = None) -> AsyncJobHandle:
        """Follow it until it ends, however it ends: look at `state`."""
        return await self._client.wait(self.id, on_progress)

    def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Past and future events, until it ends; interruptions are bridged."""
        return self._client.events(self.id, after=after)

    async def cancel(self) -> AsyncJobHandle:
        """Ask it to stop; what it has charged stays charged."""
        return await self._client.cancel(self.id)

    async def report(self, *, audience: Audience = "owner") -> dict[str, Any]:
        """Its report, once it has succeeded."""
        return await self._client.report(self.id, audience=audience)

    async def download(
        self, path: Path, *, format: Format = "parquet", n: int | None = None, seed: int | None = None
    ) -> Path:
        """Its synthetic images as a file."""
        return await self._client.download(self.id, path, format=format, n=n, seed=seed)


class AsyncJobOperations:
    """Methods of the client about jobs."""

    _transport: AsyncTransport

    async def plan(self, dataset_id: str, spec: Spec) -> PlanInfo:
        """What a job would cost; nothing is reserved."""
        return await self._transport.send(requests.create_plan(dataset_id, spec))

    async def submit(
        self, dataset_id: str, spec: Spec, *, priority: int | None = None, idempotency_key: str | None = None
    ) -> AsyncJobHandle:
        """Submit a job; its budget is reserved when this returns.

        Args:
            dataset_id: What to train on.
            spec: A `TrainingSpec` or its JSON form.
            priority: From 0 to 9: of jobs that wait, higher ones are taken first. None is that of most jobs, 5.
            idempotency_key: The same key with the same request is the same job; None draws a new one.
        """
        return await self._send(requests.submit_job(dataset_id, spec, priority, idempotency_key))

    async def get_job(self, job_id: str) -> AsyncJobHandle:
        """One job as it is now."""
        return await self._send(requests.get_job(job_id))

    async def jobs(self) -> AsyncIterator[AsyncJobHandle]:
        """All jobs, newest first, fetched page by page."""
        async for item in self._transport.iter_items("/v1/jobs"):
            yield AsyncJobHandle.bind(Job.model_validate(item), self)

    async def update_job(
        self, job_id: str, *, name: str | None = None, tags: Sequence[str] | None = None, notes: str | None = None
    ) -> AsyncJobHandle:
        """Name, tag or annotate a job; what is None stays as it is."""
        changes = {"name": name, "tags": None if tags is None else list(tags), "notes": notes}
        return await self._send(requests.update_job(job_id, changes))

    async def cancel(self, job_id: str) -> AsyncJobHandle:
        """Ask a job to stop; what it has charged stays charged."""
        return await self._send(requests.control_job(job_id, "cancel"))

    async def pause(self, job_id: str) -> AsyncJobHandle:
        """Ask a job to pause; its reservation and what it has reached stay."""
        return await self._send(requests.control_job(job_id, "pause"))

    async def resume(self, job_id: str) -> AsyncJobHandle:
        """Resume a paused job."""
        return await self._send(requests.control_job(job_id, "resume"))

    async def wait(
        self,
        job: Job | str,
        on_progress: OnProgress | None = None,
        *,
        interval: float = 1.0,
        patience: float = 30.0,
    ) -> AsyncJobHandle:
        """Follow a job until it ends, however it ends: look at `state`.

        Args:
            job: The job or its id.
            on_progress: Called with the job after each poll.
            interval: Seconds between two polls.
            patience: Seconds without a response after which waiting is given up; the job goes on.

        Raises:
            ServiceUnreachable: No response for `patience` seconds.
        """
        job_id = job if isinstance(job, str) else job.id
        retry_policy = RetryPolicy(patience, interval)
        while True:
            try:
                current = await self.get_job(job_id)
            except ServiceUnreachable as error:
                await asyncio.sleep(retry_policy.choose_delay(error))
                continue
            retry_policy.reset()
            if on_progress is not None:
                on_progress(current)
            if current.ended:
                return current
            await asyncio.sleep(interval)

    async def events(self, job_id: str, *, after: int = 0, patience: float = 60.0) -> AsyncIterator[Event]:
        """Past and future events of a job, until it ends. Interruptions are bridged.

        Args:
            job_id: The job.
            after: Number of the last event that is known.
            patience: Seconds without a response after which following is given up; the job goes on.

        Raises:
            ServiceUnreachable: No response for `patience` seconds.
        """
        parser, retry_policy = EventParser(after), RetryPolicy(patience)
        while not parser.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(parser.last_id)}
            try:
                async for line in self._transport.iter_lines(f"/v1/jobs/{job_id}/events", headers):
                    retry_policy.reset()
                    for event in parser.feed(line):
                        yield event
            except ServiceUnreachable as error:
                await asyncio.sleep(retry_policy.choose_delay(error))
            parser.restart()

    async def report(self, job_id: str, *, audience: Audience = "owner") -> dict[str, Any]:
        """The report of a succeeded job."""
        return await self._transport.send(requests.get_report(job_id, audience))

    async def download_report(self, job_id: str, path: Path, *, audience: Audience = "owner") -> Path:
        """The same as one HTML file."""
        return await self._transport.save(f"/v1/jobs/{job_id}/report", {"audience": audience, "format": "html"}, path)

    async def files(self, job_id: str) -> tuple[FileInfo, ...]:
        """The files of a job that the key may see, each with its audience."""
        return await self._transport.send(requests.list_files(job_id))

    async def download_file(self, job_id: str, name: str, path: Path) -> Path:
        """One of them."""
        return await self._transport.save(f"/v1/jobs/{job_id}/artifacts/{name}", {}, path)

    async def download_samples(self, job_id: str, path: Path) -> Path:
        """PNG with samples of every class."""
        return await self._transport.save(f"/v1/jobs/{job_id}/samples.png", {}, path)

    async def download_generator(self, job_id: str, path: Path) -> Path:
        """The generator as safetensors."""
        return await self._transport.save(f"/v1/jobs/{job_id}/generator", {}, path)

    async def download(
        self, job_id: str, path: Path, *, format: Format = "npz", n: int | None = None, seed: int | None = None
    ) -> Path:
        """Synthetic images as a file; more images cost no privacy.

        Args:
            job_id: A job whose images are ready (`Job.released_at`); they may still be measured.
            path: Where to write; replaced once the download is complete.
            format: "npz", "parquet", "imagefolder" (a zip) or "webdataset" (a tar).
            n: How many; None takes what the job packed.
            seed: Repeats a draw; None takes from what the job packed as far as that goes.
        """
        params = requests.encode_form({"format": format, "n": n, "seed": seed})
        url_path = f"/v1/jobs/{job_id}/synthetic"
        return await self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)

    async def download_bundle(
        self,
        job_id: str,
        path: Path,
        *,
        format: Format = "parquet",
        n: int | None = None,
        seed: int | None = None,
        title: str | None = None,
        license: str = "other",
    ) -> Path:
        """The same as a zip that is ready to be published: card, licence, checksums, Croissant, proof of privacy.

        Args:
            job_id: A succeeded job.
            path: Where to write; replaced once the download is complete.
            format: Of the images.
            n: How many; None takes what the job packed.
            seed: Repeats a draw.
            title: Public name of the dataset.
            license: SPDX id, for example CC-BY-4.0; `other` chooses none.
        """
        fields = {"format": format, "n": n, "seed": seed, "title": title, "license": license}
        url_path, params = f"/v1/jobs/{job_id}/dataset", requests.encode_form(fields)
        return await self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)

    async def _send(self, request: Request[Job]) -> AsyncJobHandle:
        return AsyncJobHandle.bind(await self._transport.send(request), self)
