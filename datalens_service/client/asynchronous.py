"""The client for asyncio: the methods of the synchronous one, each call in a thread.

A call that is cancelled is over for whoever made it; its thread ends with the answer, or when time is up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from pydantic import PrivateAttr

from datalens_service.base.wording import Voice
from datalens_service.client.addresses import DEFAULT_URL
from datalens_service.client.client import Client
from datalens_service.client.jobs import JobHandle
from datalens_service.client.models import Job

_CALLS_AT_ONCE: Final = 64
_END: Final = object()

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class _Threads:
    """Runs methods of something synchronous in threads."""

    _target: Any
    _pool: ThreadPoolExecutor

    async def _call(self, method: Callable[..., Answer], *args: Any, **kwargs: Any) -> Answer:
        work = functools.partial(contextvars.copy_context().run, method, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _iterate(self, items: Iterator[Answer]) -> AsyncIterator[Answer]:
        while (item := await self._call(next, items, _END)) is not _END:
            yield item


def _awaited(
    method: Callable[Concatenate[Any, Arguments], Answer],
) -> Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Answer]]:
    @functools.wraps(method)
    async def call(self: _Threads, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return await self._call(method, self._target, *args, **kwargs)

    return call


def _bound(
    method: Callable[Concatenate[Any, Arguments], JobHandle],
) -> Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, AsyncJobHandle]]:
    @functools.wraps(method)
    async def call(self: _Threads, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> AsyncJobHandle:
        return AsyncJobHandle.bind(await self._call(method, self._target, *args, **kwargs), self._pool)

    return call


def _iterated(
    method: Callable[Concatenate[Any, Arguments], Iterator[Answer]],
) -> Callable[Concatenate[Any, Arguments], AsyncIterator[Answer]]:
    @functools.wraps(method)
    def call(self: _Threads, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> AsyncIterator[Answer]:
        return self._iterate(method(self._target, *args, **kwargs))

    return call


class AsyncClient(_Threads):
    """A connection to one service, for asyncio; arguments and errors are those of `Client`."""

    def __init__(
        self, url: str = DEFAULT_URL, api_key: str = "", *, timeout: float = 60.0, voice: Voice = Voice.REST
    ) -> None:
        self._target = Client(url, api_key, timeout=timeout, voice=voice)
        self._pool = ThreadPoolExecutor(_CALLS_AT_ONCE, "datalens-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections of this client."""
        await self._call(self._target.close)
        self._pool.shutdown(wait=False)

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
    release_job = _bound(Client.release_job)
    withhold_job = _bound(Client.withhold_job)
    pause = _bound(Client.pause)
    resume = _bound(Client.resume)
    wait = _bound(Client.wait)
    events = _iterated(Client.events)
    report = _awaited(Client.report)
    files = _awaited(Client.files)
    find_images = _awaited(Client.find_images)
    download = _awaited(Client.download)
    download_bundle = _awaited(Client.download_bundle)
    download_file = _awaited(Client.download_file)
    download_generator = _awaited(Client.download_generator)
    download_report = _awaited(Client.download_report)
    download_samples = _awaited(Client.download_samples)

    releases = _iterated(Client.releases)
    get_release = _awaited(Client.get_release)
    update_release = _awaited(Client.update_release)
    share_release = _awaited(Client.share_release)
    release_links = _awaited(Client.release_links)
    revoke_release_link = _awaited(Client.revoke_release_link)

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

    journal = _iterated(Client.journal)
    ledger = _iterated(Client.ledger)

    retention = _awaited(Client.retention)
    set_retention = _awaited(Client.set_retention)
    set_installation_retention = _awaited(Client.set_installation_retention)
    due_removals = _awaited(Client.due_removals)
    tenants = _awaited(Client.tenants)
    get_tenant = _awaited(Client.get_tenant)
    set_tenant_quotas = _awaited(Client.set_tenant_quotas)
    remove_tenant = _awaited(Client.remove_tenant)

    async def jobs(self) -> AsyncIterator[AsyncJobHandle]:
        """Yield all jobs, newest first, fetched page by page."""
        async for job in self._iterate(self._target.jobs()):
            yield AsyncJobHandle.bind(job, self._pool)


class _JobMethods(_Threads):
    refresh = _bound(JobHandle.refresh)
    wait = _bound(JobHandle.wait)
    events = _iterated(JobHandle.events)
    cancel = _bound(JobHandle.cancel)
    report = _awaited(JobHandle.report)
    download = _awaited(JobHandle.download)


class AsyncJobHandle(_JobMethods, Job):
    """A job as it was when it was read, with methods that act on it."""

    _target: JobHandle = PrivateAttr()
    _pool: ThreadPoolExecutor = PrivateAttr()

    @classmethod
    def bind(cls, job: JobHandle, pool: ThreadPoolExecutor) -> Self:
        """A handle that calls another one in threads."""
        handle = cls.model_validate(job.model_dump())
        handle._target, handle._pool = job, pool
        return handle
