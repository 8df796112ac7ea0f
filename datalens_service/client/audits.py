"""Requests about audits: attack a method or a released model, and read what was found."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from datalens_service.client.models import AuditInfo
from datalens_service.client.requests import AuditBody, encode_spec
from datalens_service.client.retry_policy import RetryPolicy
from datalens_service.client.transport import Transport


class AuditOperations:
    """Methods of the client about audits. What they find is for the owner of the records alone."""

    _transport: Transport

    def submit_audit(self, request: AuditBody, *, idempotency_key: str | None = None) -> AuditInfo:
        """Submit an audit; nothing is charged for it.

        Args:
            idempotency_key: The same key with the same request is the same audit; None draws a new one.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        options = {"json": encode_spec(request), "headers": headers}
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
