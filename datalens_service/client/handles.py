"""Jobs that know the client they came from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from datalens_service.client.calls import Audience, Format
from datalens_service.client.replies import Event, Job

if TYPE_CHECKING:
    from datalens_service.client.async_client import AsyncClient
    from datalens_service.client.client import Client


class LiveJob(Job):
    """A job as it was when it was read, with what can be done about it."""

    _client: Client = PrivateAttr()

    @classmethod
    def bound(cls, job: Job, client: Client) -> Self:
        """A job that knows its client."""
        live = cls.model_validate(job.model_dump())
        live._client = client
        return live

    def refresh(self) -> LiveJob:
        """The job as it is now."""
        return self._client.get_job(self.id)

    def wait(self, on_progress: Callable[[Job], None] | None = None) -> LiveJob:
        """Follow it until it ends, however it ends: look at `state`."""
        return self._client.wait(self.id, on_progress)

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """What happened and happens to it, until it ends; interruptions are bridged."""
        return self._client.events(self.id, after=after)

    def cancel(self) -> LiveJob:
        """Ask it to stop; what it has charged stays charged."""
        return self._client.cancel(self.id)

    def report(self, *, audience: Audience = "owner") -> dict[str, Any]:
        """Its report, once it has succeeded."""
        return self._client.report(self.id, audience=audience)

    def download(
        self, path: Path, *, format: Format = "parquet", n: int | None = None, seed: int | None = None
    ) -> Path:
        """Its synthetic images as a file."""
        return self._client.download(self.id, path, format=format, n=n, seed=seed)


class AsyncLiveJob(Job):
    """The same for `AsyncClient`."""

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def bound(cls, job: Job, client: AsyncClient) -> Self:
        """A job that knows its client."""
        live = cls.model_validate(job.model_dump())
        live._client = client
        return live

    async def refresh(self) -> AsyncLiveJob:
        """The job as it is now."""
        return await self._client.get_job(self.id)

    async def wait(self, on_progress: Callable[[Job], None] | None = None) -> AsyncLiveJob:
        """Follow it until it ends, however it ends: look at `state`."""
        return await self._client.wait(self.id, on_progress)

    def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """What happened and happens to it, until it ends; interruptions are bridged."""
        return self._client.events(self.id, after=after)

    async def cancel(self) -> AsyncLiveJob:
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
