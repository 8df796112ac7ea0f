"""Requests about datasets and uploads."""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from datalens_service.client import requests
from datalens_service.client.errors import ClientError, ServiceUnreachable, build_validation_error
from datalens_service.client.models import DatasetInfo, Receipt, UploadedDataset, UploadInfo, ValidationInfo
from datalens_service.client.responses import parse_object
from datalens_service.client.retry_policy import RetryPolicy
from datalens_service.client.transport import Transport

OnBytes = Callable[[str, int, int], None]
"""Called with the id of an upload, the bytes stored so far, and the bytes of the whole file."""

_NOT_DECLARED: Final = ("self", "path", "upload_id", "on_bytes")
"""Arguments of `upload_dataset` that say nothing of the data; all others have the names of their members in REST."""


class DatasetOperations:
    """Methods of the client about datasets."""

    _transport: Transport

    def upload_dataset(
        self,
        path: Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        name: str | None = None,
        class_names: tuple[str, ...] | None = None,
        confirm_classes: bool = False,
        records_per_unit: int | None = None,
        classes_per_unit: int | None = None,
        unit: str | None = None,
        public_test: bool = False,
        public_records: bool = False,
        public_license: str | None = None,
        shares_budget_with: str | None = None,
        leave_out_constant_images: bool = False,
        ignore_groups: bool = False,
        group_column: str | None = None,
        label_column: str | None = None,
        encoding: str | None = None,
        skip_unreadable: bool = False,
        allow_identifying_classes: bool = False,
        prepare_size: str | int | None = None,
        prepare_fit: str | None = None,
        prepare_colour: str | None = None,
        prepare_window: tuple[int, int] | None = None,
        prepare_frame: int | None = None,
        upload_id: str | None = None,
        on_bytes: OnBytes | None = None,
    ) -> UploadedDataset:
        """Upload labelled images and wait for their validation. Large files are sent in chunks that can be resumed.

        Class names become public with the budget. Unless they are declared here or confirmed unseen, the answer has
        the state "review" and says in `review` what was read: `confirm_dataset` opens the budget then, and
        `delete_dataset` deletes the upload.

        Args:
            path: The file; its contents decide the format.
            epsilon: Lifetime budget of these records.
            delta: δ of the budget; None takes min(1e-5, n^-1.1).
            name: All keys that list data sets see it; None takes the name of the file.
            class_names: Public class names, which confirms them; None leaves them to the format.
            confirm_classes: True if the class names that the file brings along may become public unseen.
            records_per_unit: Most training images of one group, if the file groups its images.
            classes_per_unit: Most classes that one group reaches; None puts no further bound.
            unit: Name of one group, for example "patient".
            public_test: True if the test split is public: figures measured on it may be passed on.
            public_records: True if all records are public, so that jobs may start from them (`public_data`).
            public_license: Under which licence public records may be passed on, in words.
            shares_budget_with: Id of a dataset whose budget pays for this one, too: for data that grows.
            leave_out_constant_images: True if training images of a single colour are left out.
            ignore_groups: True if single images are protected although the file groups them.
            group_column: Column of the metadata with the groups; None takes the usual names.
            label_column: The same of the labels.
            encoding: Encoding of metadata, and of names in archives, that are not UTF-8.
            skip_unreadable: True if files that cannot be read are left out.
            allow_identifying_classes: True if class names may look like persons.
            prepare_size: Pixels to which every image is brought, 64 or "96x48" (width x height); None takes images as
                they are.
            prepare_fit: "resize" (None) or "crop".
            prepare_colour: "grey" (None) or "rgb".
            prepare_window: Values that become 0 and 255 in images of more than 8 bits.
            prepare_frame: Number of the frame that is read of files with several, from 1.
            upload_id: Id of an unfinished upload of this file, which is resumed.
            on_bytes: Called as the upload proceeds.
        """
        declaration = {name: value for name, value in locals().items() if name not in _NOT_DECLARED}
        declaration["prepare_window"] = prepare_window and "{} {}".format(*prepare_window)
        if upload_id is None and path.stat().st_size <= requests.CHUNK_SIZE:
            with path.open("rb") as file:
                form = {"data": requests.encode_form(declaration), "files": {"file": (path.name, file)}}
                options = {**form, "timeout": requests.UPLOAD_SECONDS}
                return self._transport.send("POST", "/v1/datasets", UploadedDataset, options)
        stored_id = self.upload(path, upload_id=upload_id, on_bytes=on_bytes)
        body = {"upload_id": stored_id, **requests.drop_unset(declaration)}
        created = self._transport.send("POST", "/v1/datasets:from-upload", UploadedDataset, {"json": body})
        dataset = self.wait_for_dataset(created)
        report = self.validation(dataset.id)
        return UploadedDataset.model_validate({**dict(dataset), "notices": report.notices, "review": report.review})

    def confirm_dataset(
        self,
        dataset_id: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        shares_budget_with: str | None = None,
    ) -> UploadedDataset:
        """Make the class names of an upload in state "review" public, for good, and open its budget. Repeatable.

        Args:
            epsilon: Lifetime budget of these records. If this or one of the next two is named, the three replace what
                was declared with the upload.
        """
        budget = {"epsilon": epsilon, "delta": delta, "shares_budget_with": shares_budget_with}
        options = {"json": requests.drop_unset({"confirm_classes": True, **budget}), "timeout": requests.UPLOAD_SECONDS}
        return self._transport.send("POST", f"/v1/datasets/{dataset_id}:confirm", UploadedDataset, options)

    def upload_encoder(self, path: Path) -> dict[str, Any]:
        """Upload an ONNX file as a public encoder; returns what a method takes as its `encoder`. Repeatable.

        Args:
            path: One input of floats (1, 3, height, width), RGB from 0 to 1; one vector as result.
        """
        with path.open("rb") as file:
            form = {"files": {"file": ("encoder.onnx", file)}, "timeout": requests.UPLOAD_SECONDS}
            return parse_object(self._transport.respond("POST", "/v1/encoders", form))

    def upload(self, path: Path, *, upload_id: str | None = None, on_bytes: OnBytes | None = None) -> str:
        """Send a file in chunks, each with a checksum, across interruptions; returns the id of the upload.

        Args:
            upload_id: Id of an unfinished upload of this file, which is resumed.
        """
        size = path.stat().st_size
        upload = self._begin_upload(size, path.name) if upload_id is None else self._get_upload(upload_id)
        offset, retry_policy = upload.offset, RetryPolicy()
        with path.open("rb") as file:
            while offset < size:
                file.seek(offset)
                chunk = file.read(requests.CHUNK_SIZE)
                try:
                    offset = self._send_chunk(upload.id, offset, chunk)
                    retry_policy.reset()
                except ClientError as error:
                    time.sleep(retry_policy.choose_delay(error))
                    offset = self._read_offset(upload.id, offset)
                if on_bytes is not None:
                    on_bytes(upload.id, offset, size)
        return upload.id

    def wait_for_dataset(self, dataset: DatasetInfo, *, interval: float = 0.5) -> DatasetInfo:
        """Wait until an upload has been read: it is "ready", or in "review".

        Raises:
            ClientError: The upload cannot be used; `ClientError.problem` has "bad_files".
        """
        while dataset.state == "validating":
            time.sleep(interval)
            dataset = self.dataset(dataset.id)
        if dataset.state == "invalid":
            raise build_validation_error(self.validation(dataset.id))
        return dataset

    def dataset(self, dataset_id: str) -> DatasetInfo:
        """Return the dataset with this id."""
        return self._transport.send("GET", f"/v1/datasets/{dataset_id}", DatasetInfo)

    def datasets(self) -> Iterator[DatasetInfo]:
        """Yield all datasets, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/datasets", DatasetInfo)

    def validation(self, dataset_id: str) -> ValidationInfo:
        """The validation report of an upload: counts, or the files that cannot be used. Private."""
        return self._transport.send("GET", f"/v1/datasets/{dataset_id}/validation", ValidationInfo)

    def download_preview(self, dataset_id: str, path: Path) -> Path:
        """PNG with some of the private records: for their owner only."""
        return self._transport.save(f"/v1/datasets/{dataset_id}/preview", {}, path)

    def update_dataset(
        self, dataset_id: str, *, name: str | None = None, tags: Sequence[str] | None = None, notes: str | None = None
    ) -> DatasetInfo:
        """Rename, tag or annotate a dataset; what is None stays as it is."""
        labels = requests.encode_labels(name, tags, notes)
        return self._transport.send("PATCH", f"/v1/datasets/{dataset_id}", DatasetInfo, labels)

    def delete_dataset(self, dataset_id: str) -> Receipt:
        """Delete the records; what was spent on them stays on the books."""
        return self._transport.send("DELETE", f"/v1/datasets/{dataset_id}", Receipt)

    def _begin_upload(self, length: int, file_name: str) -> UploadInfo:
        encoded_name = base64.b64encode(file_name.encode(errors="replace")).decode()
        headers = {**requests.TUS, "Upload-Length": str(length), "Upload-Metadata": f"filename {encoded_name}"}
        return self._transport.send("POST", "/v1/uploads", UploadInfo, {"headers": headers})

    def _get_upload(self, upload_id: str) -> UploadInfo:
        return self._transport.send("GET", f"/v1/uploads/{upload_id}", UploadInfo)

    def _send_chunk(self, upload_id: str, offset: int, chunk: bytes) -> int:
        """Append a chunk with its checksum; the new offset."""
        headers = {
            **requests.TUS,
            "Upload-Offset": str(offset),
            "Upload-Checksum": f"sha256 {base64.b64encode(hashlib.sha256(chunk).digest()).decode()}",
            "Content-Type": "application/offset+octet-stream",
        }
        options = {"content": chunk, "headers": headers, "timeout": requests.UPLOAD_SECONDS}
        return int(self._transport.respond("PATCH", f"/v1/uploads/{upload_id}", options).headers["Upload-Offset"])

    def _read_offset(self, upload_id: str, last_offset: int) -> int:
        """Bytes stored on the service; `last_offset` if it does not respond."""
        try:
            return self._get_upload(upload_id).offset
        except ServiceUnreachable:
            return last_offset
