"""The client for asyncio: the methods of the synchronous one, each call in a thread.

A call that is cancelled is over for whoever made it; its thread ends with the answer, or when time is up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from pydantic import PrivateAttr

from datalens_service.client.address import DEFAULT_URL
from datalens_service.client.client import Client
from datalens_service.client.jobs import JobHandle, OnProgress
from datalens_service.client.models import Event, Job
from datalens_service.client.requests import Audience, Format
from datalens_service.voices import Voice

_CALLS_AT_ONCE: Final = 64
_END: Final = object()

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _awaited(
    method: Callable[Concatenate[Client, Arguments], Answer],
) -> Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, Answer]]:
    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return await self._call(functools.partial(method, self._client, *args, **kwargs))

    return call


def _bound(
    method: Callable[Concatenate[Client, Arguments], JobHandle],
) -> Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, AsyncJobHandle]]:
    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> AsyncJobHandle:
        return AsyncJobHandle.bind(await self._call(functools.partial(method, self._client, *args, **kwargs)), self)

    return call


def _iterated(
    method: Callable[Concatenate[Client, Arguments], Iterator[Answer]],
) -> Callable[Concatenate[AsyncClient, Arguments], AsyncIterator[Answer]]:
    @functools.wraps(method)
    def call(self: AsyncClient, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> AsyncIterator[Answer]:
        return self._iterate(method(self._client, *args, **kwargs))

    return call


class AsyncClient:
    """A connection to one service, for asyncio; arguments and errors are those of `Client`.

    Args:
        url: Address of the service.
        api_key: A key made by `datalens serve` or `datalens keys create`.
        timeout: Seconds to wait for a response; uploads get more.
        voice: Whose words errors of the service use; the arguments of Python have the names of REST.
    """

    def __init__(
        self, url: str = DEFAULT_URL, api_key: str = "", *, timeout: float = 60.0, voice: Voice = Voice.REST
    ) -> None:
        self._client = Client(url, api_key, timeout=timeout, voice=voice)
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, "datalens-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._call(self._client.close)
        self._threads.shutdown(wait=False)

    upload_dataset = _awaited(Client.upload_dataset)
    confirm_dataset = _awaited(Client.confirm_dataset)
    upload_encoder = _awaited(Client.upload_encoder)
    upload = _awaited(Client.upload)
    wait_for_dataset = _awaited(Client.wait_for_dataset)
    dataset = _awaited(Client.dataset)
    datasets = _iterated(Client.datasets)
    validation = _awaited(Client.validation)
    download_preview = _awaited(Client.download_preview)
    update_dataset = _awaited(Client.update_dataset)
    delete_dataset = _awaited(Client.delete_dataset)

    plan = _awaited(Client.plan)
    submit = _bound(Client.submit)
    get_job = _bound(Client.get_job)
    update_job = _bound(Client.update_job)
    cancel = _bound(Client.cancel)
    pause = _bound(Client.pause)
    resume = _bound(Client.resume)
    wait = _bound(Client.wait)
    events = _iterated(Client.events)
    report = _awaited(Client.report)
    files = _awaited(Client.files)
    download = _awaited(Client.download)
    download_bundle = _awaited(Client.download_bundle)
    download_file = _awaited(Client.download_file)
    download_generator = _awaited(Client.download_generator)
    download_report = _awaited(Client.download_report)
    download_samples = _awaited(Client.download_samples)

    classifiers = _iterated(Client.classifiers)
    get_classifier = _awaited(Client.get_classifier)
    predict = _awaited(Client.predict)
    individual_epsilon = _awaited(Client.individual_epsilon)
    download_classifier = _awaited(Client.download_classifier)

    submit_audit = _awaited(Client.submit_audit)
    get_audit = _awaited(Client.get_audit)
    audits = _iterated(Client.audits)
    download_audit_picture = _awaited(Client.download_audit_picture)
    cancel_audit = _awaited(Client.cancel_audit)
    wait_for_audit = _awaited(Client.wait_for_audit)

    async def jobs(self) -> AsyncIterator[AsyncJobHandle]:
        """All jobs, newest first, fetched page by page."""
        async for job in self._iterate(self._client.jobs()):
            yield AsyncJobHandle.bind(job, self)

    async def _call(self, function: Callable[[], Answer]) -> Answer:
        work = functools.partial(contextvars.copy_context().run, function)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _iterate(self, items: Iterator[Answer]) -> AsyncIterator[Answer]:
        while (item := await self._call(functools.partial(next, items, _END))) is not _END:
            yield item


class AsyncJobHandle(Job):
    """A job as it was when it was read, with methods that act on it."""

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def bind(cls, job: Job, client: AsyncClient) -> Self:
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
