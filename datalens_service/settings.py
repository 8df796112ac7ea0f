"""Settings of a deployment: environment variables with the prefix `DATALENS_`, all optional.

Nothing is probed for. Which executor and which database are used is what stands here, and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

GIBIBYTE = 2**30


class Settings(BaseSettings):
    """What an operator may set; the defaults run everything on one machine without a further service."""

    model_config = SettingsConfigDict(env_prefix="DATALENS_", extra="forbid", frozen=True)

    data_dir: Path = Field(
        default=Path("datalens-data"), description="Folder of private records, artifacts, log and default database."
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL, SQLite or PostgreSQL; empty means SQLite in data_dir."
    )
    ledger_log: Path | None = Field(
        default=None,
        description="Append-only log of charges outside the database; None means ledger.log in data_dir. "
        "Keep it on another disk than the database backups: a restored database is checked against it.",
    )
    artifact_url: str = Field(
        default="",
        pattern=r"^$|^[a-z][a-z0-9]*://[^@]+$",
        description="Object store for releasable files, for example s3://bucket/prefix; empty means data_dir. "
        "Credentials are read from the environment of the store's library, for example AWS_ACCESS_KEY_ID.",
    )
    executor: Literal["local", "celery"] = Field(
        default="local", description="Who starts jobs: the built-in supervisor, or Celery workers."
    )
    broker_url: str | None = Field(default=None, description="Celery broker, for example redis://redis:6379/0.")
    queue: str = Field(
        default="cpu",
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="Celery queue a worker serves, and where the API sends jobs that name no device; "
        "those that do go to cpu or gpu.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Where jobs train: cpu, cuda, cuda:1, …; auto takes CUDA where torch finds it.",
    )
    lease_seconds: int = Field(
        default=30, ge=5, le=3600, description="A worker that is silent for this long loses its job."
    )
    rank_timeout_seconds: int = Field(
        default=1800, ge=1, description="Longest time for which ranks started by torchrun wait for each other."
    )
    max_attempts: int = Field(
        default=3, ge=1, le=100, description="Lost workers in a row, without a stored step, before a job fails."
    )
    max_running_jobs: int = Field(default=1, ge=1, description="Jobs the local supervisor runs at the same time.")
    contact: str | None = Field(
        default=None, max_length=200, description="Whom readers of a report may ask; stands in every report."
    )
    commit: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{7,64}$", description="Commit of the source, for reports and proofs."
    )
    inception_weights: Path | None = Field(
        default=None,
        description="Weights of ImageNet Inception as torch-fidelity publishes them, on every worker; None downloads "
        "them when a job first asks for that extractor.",
    )
    max_upload_bytes: int = Field(default=4 * GIBIBYTE, ge=1, description="Largest accepted request body.")
    upload_hours: int = Field(
        default=24, ge=1, le=24 * 30, description="Time after which an unfinished resumable upload is removed."
    )
    decode_memory_bytes: int = Field(
        default=8 * GIBIBYTE, ge=2**28, description="Address space of the process that reads an upload."
    )
    decode_seconds: int = Field(
        default=1800, ge=1, description="Time, of the clock and of the processor, after which that process is killed."
    )
    host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port the API listens on.")
    requests_per_minute: int = Field(
        default=12_000,
        ge=1,
        description="Requests a key may send per minute, if it has no limit of its own. API "
        "processes with the same Redis as broker share it; otherwise each counts for itself.",
    )
    concurrent_requests: int = Field(
        default=128, ge=1, description="Requests of a key that one API process serves at once, if it has no own limit."
    )
    webhooks_to_private_addresses: bool = Field(
        default=False, description="Whether webhooks may go to private addresses: loopback, private and link-local."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe message that is logged."
    )

    @model_validator(mode="after")
    def _celery_needs_a_broker(self) -> Self:
        if self.executor == "celery" and not self.broker_url:
            raise ValueError("executor=celery needs DATALENS_BROKER_URL, for example redis://localhost:6379/0.")
        return self

    @field_validator("artifact_url")
    @classmethod
    def _local_files_are_synced(cls, url: str) -> str:
        if url.startswith("file:"):
            raise ValueError("artifact_url names an object store; leave it empty for files on this machine.")
        return url

    @property
    def url(self) -> str:
        """Database URL with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'datalens.db'}"

    @property
    def ledger_log_path(self) -> Path:
        """Path of the charge log with the default filled in."""
        return self.ledger_log or self.data_dir.absolute() / "ledger.log"

    @property
    def served(self) -> bool:
        """Whether a service shows what it stores to the owner of the data."""
        return True


class EmbeddedSettings(Settings):
    """Of a run without a service: nobody can look at the records through this program."""

    @property
    def served(self) -> bool:
        """No page and no address."""
        return False
