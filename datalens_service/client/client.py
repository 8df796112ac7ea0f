"""The client: a connection and all methods of the API; those about data sets and jobs are in modules of their own."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import urljoin
from uuid import uuid4

from datalens_service.base.wording import Voice
from datalens_service.client import requests
from datalens_service.client.addresses import DEFAULT_URL
from datalens_service.client.datasets import DatasetOperations
from datalens_service.client.jobs import JobOperations
from datalens_service.client.models import (
    Actor,
    AuditInfo,
    ClassifierInfo,
    DueInfo,
    IndividualEpsilon,
    JournalEntry,
    LedgerEntry,
    PredictionsInfo,
    QuotasInfo,
    ReleaseInfo,
    ReleaseLinkInfo,
    ReleaseLinkList,
    ResponseModel,
    RetentionDays,
    RetentionInfo,
    SharedRelease,
    TenantInfo,
)
from datalens_service.client.requests import AuditBody, ClassifierFormat
from datalens_service.client.retry_policy import RetryPolicy
from datalens_service.client.transport import Transport


class _Journal(ResponseModel):
    items: tuple[JournalEntry, ...]
    actors: tuple[Actor, ...]
    next_cursor: int | None


class _Spender(ResponseModel):
    job_id: str
    submitted_by: Actor | None


class _Ledger(ResponseModel):
    items: tuple[LedgerEntry, ...]
    spenders: tuple[_Spender, ...]
    next_cursor: int | None


class _DueList(ResponseModel):
    items: tuple[DueInfo, ...]


class _TenantList(ResponseModel):
    items: tuple[TenantInfo, ...]


class Client(DatasetOperations, JobOperations):
    """A connection to one service.

    Args:
        url: Address of the service.
        api_key: A key made by `datalens serve` or `datalens keys create`.
        timeout: Seconds to wait for a response; uploads get more.
        voice: Interface whose words errors of the service use; the arguments of Python have the names of REST.

    Every method raises `ClientError` where the service refuses, and its subclass `ServiceUnreachable` where nobody
    answers.

    Raises:
        ClientError: `url` is not an HTTP address.
    """

    def __init__(
        self, url: str = DEFAULT_URL, api_key: str = "", *, timeout: float = 60.0, voice: Voice = Voice.REST
    ) -> None:
        self._transport = Transport(url, api_key, timeout, voice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections of this client."""
        self._transport.close()

    def releases(self) -> Iterator[ReleaseInfo]:
        """Yield all releases, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/releases", ReleaseInfo)

    def get_release(self, release_id: str) -> ReleaseInfo:
        """Return what a release is and promises."""
        return self._transport.send("GET", f"/v1/releases/{release_id}", ReleaseInfo)

    def update_release(self, release_id: str, *, title: str | None = None, license: str | None = None) -> ReleaseInfo:
        """Give a release a public title and a licence by its SPDX id; what is None stays as it is."""
        body = {"json": requests.drop_unset({"title": title, "license": license})}
        return self._transport.send("PATCH", f"/v1/releases/{release_id}", ReleaseInfo, body)

    def share_release(self, release_id: str, *, partner: str, expires_at: datetime | None = None) -> SharedRelease:
        """Make a link by which one partner gets one release without a key. Its address is shown this once.

        Args:
            partner: Name of the partner; seen by keys of your own tenant alone.
            expires_at: End of the link, with a time zone; None lets it work until it is revoked.
        """
        body = {"partner": partner, "expires_at": expires_at and expires_at.isoformat()}
        options = {"json": requests.drop_unset(body)}
        made = self._transport.send("POST", f"/v1/releases/{release_id}/links", SharedRelease, options)
        return made.model_copy(update={"url": urljoin(self._transport.url, made.url)})

    def release_links(self, release_id: str) -> tuple[ReleaseLinkInfo, ...]:
        """Return all links of a release, oldest first, ended ones included."""
        return self._transport.send("GET", f"/v1/releases/{release_id}/links", ReleaseLinkList).items

    def revoke_release_link(self, link_id: str) -> ReleaseLinkInfo:
        """End a link at once; what was downloaded by it stays where it is."""
        return self._transport.send("DELETE", f"/v1/release-links/{link_id}", ReleaseLinkInfo)

    def classifiers(self) -> Iterator[ClassifierInfo]:
        """Yield all classifiers, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/classifiers", ClassifierInfo)

    def get_classifier(self, classifier_id: str) -> ClassifierInfo:
        """Return a classifier with its card."""
        return self._transport.send("GET", f"/v1/classifiers/{classifier_id}", ClassifierInfo)

    def predict(self, classifier_id: str, images: Path) -> PredictionsInfo:
        """A probability for each class and image. Costs no privacy; the images are not kept.

        Args:
            images: A PNG or JPEG file, a zip or tar of them, or an NPZ with one array named images.
        """
        with images.open("rb") as file:
            url_path = f"/v1/classifiers/{classifier_id}/predictions"
            return self._transport.send("POST", url_path, PredictionsInfo, _build_form(file))

    def individual_epsilon(self, job_id: str, image: Path, label: int) -> IndividualEpsilon:
        """Realised individual ε of one record, from released iterates and this record alone. It is not kept.

        Args:
            job_id: A job of dp_sgd with accounting=per_instance.
            image: A PNG or JPEG file, a zip or tar of it, or an NPZ with one array named images.
        """
        with image.open("rb") as file:
            form = {**_build_form(file), "data": {"label": str(label)}}
            return self._transport.send("POST", f"/v1/jobs/{job_id}/individual-epsilon", IndividualEpsilon, form)

    def download_classifier(
        self, job_id: str, path: Path, *, format: ClassifierFormat = "safetensors", license: str = "other"
    ) -> Path:
        """The classifier of a job as a file.

        Args:
            path: Path of the file, which is replaced once the download is complete.
            format: `safetensors`, `onnx`, or `archive`: a zip with both, card, checksums and proof.
            license: SPDX id, for example CC-BY-4.0, in the archive; `other` chooses none.
        """
        suffix = {"safetensors": "", "onnx": ".onnx", "archive": ".zip"}[format]
        params = {"license": license} if format == "archive" else {}
        url_path = f"/v1/jobs/{job_id}/classifier{suffix}"
        return self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)

    def submit_audit(self, request: AuditBody, *, idempotency_key: str | None = None) -> AuditInfo:
        """Submit an audit; nothing is charged for it.

        Args:
            idempotency_key: The same key with the same request is the same audit; None draws a new one.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        options = {"json": requests.encode_spec(request), "headers": headers}
        return self._transport.send("POST", "/v1/audits", AuditInfo, options)

    def get_audit(self, audit_id: str) -> AuditInfo:
        """Return an audit as it is now."""
        return self._transport.send("GET", f"/v1/audits/{audit_id}", AuditInfo)

    def audits(self) -> Iterator[AuditInfo]:
        """Yield all audits, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/audits", AuditInfo)

    def download_audit_picture(self, audit_id: str, path: Path) -> Path:
        """PNG with some of the private records and what inversion made of their gradients: for their owner only."""
        return self._transport.save(f"/v1/audits/{audit_id}/picture", {}, path)

    def cancel_audit(self, audit_id: str) -> AuditInfo:
        """Ask an audit to stop."""
        return self._transport.send("POST", f"/v1/audits/{audit_id}:cancel", AuditInfo)

    def wait_for_audit(self, audit_id: str, *, interval: float = 1.0, patience: float = 30.0) -> AuditInfo:
        """Follow an audit until it ends, however it ends: look at `state`.

        Args:
            patience: Seconds without a response after which waiting is given up; the audit goes on.
        """
        readings = RetryPolicy(patience, interval).poll(lambda: self.get_audit(audit_id), interval)
        return next(audit for audit in readings if audit.ended)

    def journal(
        self,
        *,
        actor: str | None = None,
        object_id: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
    ) -> Iterator[JournalEntry]:
        """Yield entries of the audit journal, newest first, fetched page by page.

        Args:
            actor: Id or name of a key or person.
            object_id: Id of the object that was changed or created.
            outcome: HTTP status, or `4xx` for all of a kind.
            since: Time of the earliest entry.
            until: Time before which the latest entry is.
            before: Number of an entry; those before it are yielded.
        """
        times = {name: at and at.isoformat() for name, at in (("since", since), ("until", until))}
        asked = {"actor": actor, "object_id": object_id, "outcome": outcome, **times, "order": "newest"}
        cursor = before
        while True:
            fields = {**asked, "before": cursor, "limit": requests.PAGE_SIZE}
            page = self._transport.send("GET", "/v1/audit", _Journal, {"params": requests.encode_form(fields)})
            names = {one.id: one.name for one in page.actors}
            for entry in page.items:
                yield entry.model_copy(update={"actor_name": names.get(entry.actor)})
            cursor = page.next_cursor
            if cursor is None:
                return

    def ledger(self, dataset_id: str) -> Iterator[LedgerEntry]:
        """Yield entries of the ledger of a dataset's account, oldest first, fetched page by page."""
        cursor: int | None = None
        while True:
            params = requests.encode_form({"after": cursor, "limit": requests.PAGE_SIZE})
            path = f"/v1/datasets/{dataset_id}/privacy/entries"
            page = self._transport.send("GET", path, _Ledger, {"params": params})
            submitters = {one.job_id: one.submitted_by for one in page.spenders}
            for entry in page.items:
                yield entry.model_copy(update={"submitted_by": submitters.get(entry.job_id or "")})
            cursor = page.next_cursor
            if cursor is None:
                return

    def retention(self) -> RetentionInfo:
        """Return for how many days things are kept."""
        return self._transport.send("GET", "/v1/retention", RetentionInfo)

    def set_retention(self, days: RetentionDays) -> RetentionInfo:
        """Set for how many days things of the own tenant are kept. What is older leaves within a minute, for good."""
        return self._transport.send("PUT", "/v1/retention", RetentionInfo, {"json": days.model_dump()})

    def set_installation_retention(self, days: RetentionDays) -> RetentionInfo:
        """Set for how many days things of all tenants are kept at most; for owners' keys of the first tenant."""
        return self._transport.send("PUT", "/v1/retention/everywhere", RetentionInfo, {"json": days.model_dump()})

    def due_removals(self, *, within_days: int = 30, tried: RetentionDays | None = None) -> tuple[DueInfo, ...]:
        """Return what leaves within some days, soonest first, at most 1,000 things. Removes nothing.

        Args:
            tried: Days to be tried in place of those that are set.
        """
        fields = {"within_days": within_days, **(tried or RetentionDays()).model_dump()}
        # Zero is a number of days: only None leaves a field out.
        params = {name: str(days) for name, days in fields.items() if days is not None}
        return self._transport.send("GET", "/v1/retention/preview", _DueList, {"params": params}).items

    def tenants(self) -> tuple[TenantInfo, ...]:
        """Return all tenants, oldest first, removed ones included."""
        return self._transport.send("GET", "/v1/tenants", _TenantList).items

    def get_tenant(self, tenant_id: str) -> TenantInfo:
        """Return a tenant; once it was removed, with the signed receipt."""
        return self._transport.send("GET", f"/v1/tenants/{tenant_id}", TenantInfo)

    def set_tenant_quotas(self, tenant_id: str, quotas: QuotasInfo) -> TenantInfo:
        """Replace what a tenant may have at once; what it has already stays."""
        return self._transport.send("PUT", f"/v1/tenants/{tenant_id}/quotas", TenantInfo, {"json": quotas.model_dump()})

    def remove_tenant(self, tenant_id: str, *, name: str) -> TenantInfo:
        """Remove a tenant with everything but its budgets, for good. Repeatable; poll `get_tenant` for the receipt.

        Args:
            name: Its name once more, so that no other one is removed.
        """
        return self._transport.send("POST", f"/v1/tenants/{tenant_id}:remove", TenantInfo, {"json": {"name": name}})


def _build_form(file: BinaryIO) -> dict[str, Any]:
    """A file without its own name, which may be private."""
    return {"files": {"file": ("upload", file)}, "timeout": requests.UPLOAD_SECONDS}
