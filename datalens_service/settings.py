"""Settings of a deployment: environment variables with the prefix `DATALENS_`, all optional.

Nothing is probed for. Which executor and which database are used is what stands here, and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
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
    executor: Literal["local", "celery"] = Field(
        default="local", description="Who starts jobs: the built-in supervisor, or Celery workers."
    )
    broker_url: str | None = Field(default=None, description="Celery broker, for example redis://redis:6379/0.")
    queue: str = Field(
        default="cpu",
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="Celery queue that jobs are sent to and that a worker serves; cpu and gpu by convention.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Where jobs train: cpu, cuda, cuda:1, …; auto takes CUDA where torch finds it.",
    )
    lease_seconds: int = Field(
        default=30, ge=5, le=3600, description="A worker that is silent for this long loses its job."
    )
    max_attempts: int = Field(
        default=3, ge=1, le=100, description="Lost workers in a row, without a stored step, before a job fails."
    )
    max_running_jobs: int = Field(default=1, ge=1, description="Jobs the local supervisor runs at the same time.")
    max_upload_bytes: int = Field(default=4 * GIBIBYTE, ge=1, description="Largest accepted request body.")
    host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port the API listens on.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe message that is logged."
    )

    @model_validator(mode="after")
    def _celery_needs_a_broker(self) -> Self:
        if self.executor == "celery" and not self.broker_url:
            raise ValueError("executor=celery needs DATALENS_BROKER_URL, for example redis://localhost:6379/0.")
        return self

    @property
    def url(self) -> str:
        """Database URL with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'datalens.db'}"

    @property
    def ledger_log_path(self) -> Path:
        """Path of the charge log with the default filled in."""
        return self.ledger_log or self.data_dir.absolute() / "ledger.log"
