"""The calls of the REST API, one method each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from datalens_service.client import calls
from datalens_service.client.calls import Answer, Audience, Call, Format, Spec
from datalens_service.client.handles import LiveJob
from datalens_service.client.patience import Patience, refusal
from datalens_service.client.replies import (
    DatasetInfo,
    Event,
    FileInfo,
    Job,
    PlanInfo,
    Receipt,
    UploadedDataset,
    ValidationInfo,
)
from datalens_service.client.stream import EventLines
from datalens_service.client.transport import ClientError, ServiceUnreachable, Transport, parsed

DEFAULT_URL = "http://127.0.0.1:8000"

OnProgress = Callable[[Job], None]
OnBytes = Callable[[str, int, int], None]
"""Told the id of an upload, the bytes that are there, and the bytes of the whole file."""


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
        public_test: bool = False,
        account: str | None = None,
        leave_out_constant_images: bool = False,
        upload_id: str | None = None,
        on_bytes: OnBytes | None = None,
    ) -> UploadedDataset:
        """Upload labelled images and wait until they were read. Large files go in pieces, over interruptions.

        Args:
            path: The file; its contents decide the format.
            epsilon: Lifetime budget of these records.
            delta: Of the budget; None takes min(1e-5, n^-1.1).
            name: For people; None leaves it to the service.
            classes: Class names; None leaves them to the format.
            records_per_unit: Most training images of one group, if the file groups its images.
            classes_per_unit: Most classes that one group reaches; None puts no further bound.
            unit: Word for one group, for example "patient".
            public_test: Whether the test split is public: figures measured on it may be passed on.
            account: Id of a data set whose budget pays for this one, too: for data that grows.
            leave_out_constant_images: Whether training images of a single colour are left out.
            upload_id: Of an upload of this file that was given up; it goes on where it stopped.
            on_bytes: Told how far the upload is.
        """
        declared = calls.declared(
            epsilon=epsilon,
            delta=delta,
            name=name,
            classes=classes,
            records_per_unit=records_per_unit,
            classes_per_unit=classes_per_unit,
            unit=unit,
            public_test=public_test or None,
            account=account,
            leave_out_constant_images=leave_out_constant_images or None,
        )
        if upload_id is None and path.stat().st_size <= calls.PIECE_BYTES:
            return self._upload_at_once(path, declared)
        sent = self.upload(path, upload_id=upload_id, on_bytes=on_bytes)
        dataset = self.wait_for_dataset(self._do(calls.create_dataset(sent, declared)))
        return calls.with_notices(dataset, self.validation(dataset.id))

    def upload(self, path: Path, *, upload_id: str | None = None, on_bytes: OnBytes | None = None) -> str:
        """Send a file in pieces, each with a checksum, and over interruptions; the id of the upload.

        Args:
            path: The file.
            upload_id: Of an upload of this file that was given up; it goes on where it stopped.
            on_bytes: Told how far it is.
        """
        size = path.stat().st_size
        begun = self._do(calls.begin_upload(size) if upload_id is None else calls.upload_state(upload_id))
        offset, patience = begun.offset, Patience()
        with path.open("rb") as file:
            while offset < size:
                file.seek(offset)
                try:
                    offset = self._do(calls.send_piece(begun.id, offset, file.read(calls.PIECE_BYTES)))
                    patience.renew()
                except ClientError as error:
                    time.sleep(patience.after(error))
                    offset = self._offset(begun.id, offset)
                if on_bytes is not None:
                    on_bytes(begun.id, offset, size)
        return begun.id

    def wait_for_dataset(self, dataset: DatasetInfo, *, interval: float = 0.5) -> DatasetInfo:
        """The data set once its upload was read.

        Raises:
            ClientError: The upload cannot be used; `problem` has `bad_files`.
        """
        while dataset.state == "validating":
            time.sleep(interval)
            dataset = self.dataset(dataset.id)
        if dataset.state == "invalid":
            raise refusal(self.validation(dataset.id))
        return dataset

    def dataset(self, dataset_id: str) -> DatasetInfo:
        """One data set."""
        return self._do(calls.dataset(dataset_id))

    def datasets(self) -> Iterator[DatasetInfo]:
        """All data sets, newest first, fetched in portions."""
        return (DatasetInfo.model_validate(item) for item in self._items("/v1/datasets"))

    def validation(self, dataset_id: str) -> ValidationInfo:
        """What came of an upload: counts, or the files that cannot be used. Private."""
        return self._do(calls.validation(dataset_id))

    def download_preview(self, dataset_id: str, path: Path) -> Path:
        """PNG with some of the private records: for their owner only."""
        return self._transport.save(f"/v1/datasets/{dataset_id}/preview", {}, path)

    def delete_dataset(self, dataset_id: str) -> Receipt:
        """Delete the records; what was spent on them stays on the books."""
        return self._do(calls.delete_dataset(dataset_id))

    def plan(self, dataset_id: str, spec: Spec) -> PlanInfo:
        """What a job would cost; nothing is reserved."""
        return self._do(calls.plan(dataset_id, spec))

    def submit(self, dataset_id: str, spec: Spec, *, idempotency_key: str | None = None) -> LiveJob:
        """Submit a job; its budget is reserved when this returns.

        Args:
            dataset_id: What to train on.
            spec: A `TrainingSpec` or its JSON form.
            idempotency_key: The same key with the same request is the same job; None draws a new one.
        """
        return self._live(calls.submit(dataset_id, spec, idempotency_key))

    def get_job(self, job_id: str) -> LiveJob:
        """One job as it is now."""
        return self._live(calls.job(job_id))

    def jobs(self) -> Iterator[LiveJob]:
        """All jobs, newest first, fetched in portions."""
        return (LiveJob.bound(Job.model_validate(item), self) for item in self._items("/v1/jobs"))

    def cancel(self, job_id: str) -> LiveJob:
        """Ask a job to stop; what it has charged stays charged."""
        return self._live(calls.act(job_id, "cancel"))

    def pause(self, job_id: str) -> LiveJob:
        """Ask a job to pause; its reservation and what it has reached stay."""
        return self._live(calls.act(job_id, "pause"))

    def resume(self, job_id: str) -> LiveJob:
        """Let a paused job go on."""
        return self._live(calls.act(job_id, "resume"))

    def wait(
        self,
        job: Job | str,
        on_progress: OnProgress | None = None,
        *,
        interval: float = 1.0,
        patience: float = 30.0,
    ) -> LiveJob:
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
        waited = Patience(patience, interval)
        while True:
            try:
                current = self.get_job(job_id)
            except ServiceUnreachable as error:
                time.sleep(waited.after(error))
                continue
            waited.renew()
            if on_progress is not None:
                on_progress(current)
            if current.ended:
                return current
            time.sleep(interval)

    def events(self, job_id: str, *, after: int = 0, patience: float = 60.0) -> Iterator[Event]:
        """What happened and happens to a job, as it happens, until it ends. Interruptions are bridged.

        Args:
            job_id: The job.
            after: Number of the last event that is known.
            patience: Seconds without an answer after which following is given up; the job goes on.

        Raises:
            ServiceUnreachable: Nobody answered for `patience` seconds.
        """
        lines, waited = EventLines(after), Patience(patience)
        while not lines.ended:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(lines.last)}
            try:
                for line in self._transport.lines(f"/v1/jobs/{job_id}/events", headers):
                    waited.renew()
                    yield from lines.feed(line)
            except ServiceUnreachable as error:
                time.sleep(waited.after(error))
            lines.restart()

    def report(self, job_id: str, *, audience: Audience = "owner") -> dict[str, Any]:
        """The report of a succeeded job."""
        return self._do(calls.report(job_id, audience))

    def download_report(self, job_id: str, path: Path, *, audience: Audience = "owner") -> Path:
        """The same as one HTML file."""
        return self._transport.save(f"/v1/jobs/{job_id}/report", {"audience": audience, "format": "html"}, path)

    def files(self, job_id: str) -> tuple[FileInfo, ...]:
        """The files of a job that the key may see, each with its audience."""
        return self._do(calls.files(job_id))

    def download_file(self, job_id: str, name: str, path: Path) -> Path:
        """One of them."""
        return self._transport.save(f"/v1/jobs/{job_id}/artifacts/{name}", {}, path)

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
            job_id: A job whose images are ready (`released_at`); they may still be measured.
            path: Where to write; replaced once the download is complete.
            format: `npz`, `parquet`, `imagefolder` (a zip) or `webdataset` (a tar).
            n: How many; None takes what the job packed.
            seed: Repeats a draw; None takes from what the job packed as far as that goes.
        """
        wanted = calls.chosen(format=format, n=n, seed=seed)
        return self._transport.save(f"/v1/jobs/{job_id}/synthetic", wanted, path, timeout=calls.DOWNLOAD_SECONDS)

    def download_bundle(
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
            title: Public name of the data set.
            license: SPDX id, for example CC-BY-4.0; `other` chooses none.
        """
        wanted = calls.chosen(format=format, n=n, seed=seed, title=title, license=license)
        return self._transport.save(f"/v1/jobs/{job_id}/dataset", wanted, path, timeout=calls.DOWNLOAD_SECONDS)

    def _do(self, call: Call[Answer]) -> Answer:
        return call.read(self._transport.request(call.method, call.address, **call.options))

    def _live(self, call: Call[Job]) -> LiveJob:
        return LiveJob.bound(self._do(call), self)

    def _upload_at_once(self, path: Path, declared: dict[str, Any]) -> UploadedDataset:
        joined = {key: ",".join(value) if isinstance(value, list) else value for key, value in declared.items()}
        with path.open("rb") as file:
            # The file has no name there: it may be private.
            files = {"file": ("upload", file)}
            reply = self._transport.request(
                "POST", "/v1/datasets", data=calls.chosen(**joined), files=files, timeout=calls.UPLOAD_SECONDS
            )
        return parsed(UploadedDataset, reply)

    def _offset(self, upload_id: str, known: int) -> int:
        """How much is there; what was known if nobody answers."""
        try:
            return self._do(calls.upload_state(upload_id)).offset
        except ServiceUnreachable:
            return known

    def _items(self, address: str) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            page = self._do(calls.page(address, after))
            yield from page["items"]
            if not page["has_more"]:
                return
            after = page["next_cursor"]
