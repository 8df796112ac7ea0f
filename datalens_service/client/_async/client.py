"""The client: a connection and all methods of the API."""

from types import TracebackType
from typing import Self

from datalens_service.client._async.audits import AsyncAuditOperations
from datalens_service.client._async.classifiers import AsyncClassifierOperations
from datalens_service.client._async.datasets import AsyncDatasetOperations
from datalens_service.client._async.jobs import AsyncJobOperations
from datalens_service.client._async.transport import AsyncTransport
from datalens_service.client.address import DEFAULT_URL
from datalens_service.voices import Voice


class AsyncClient(AsyncDatasetOperations, AsyncJobOperations, AsyncClassifierOperations, AsyncAuditOperations):
    """A connection to one service.

    Args:
        url: Address of the service.
        api_key: A key made by `datalens serve` or `datalens keys create`.
        timeout: Seconds to wait for a response; uploads get more.
        voice: Whose words errors of the service use; the arguments of Python have the names of REST.

    Every method raises `ClientError` where the service refuses, and its subclass `ServiceUnreachable` where nobody
    answers.

    Raises:
        ClientError: `url` is not an HTTP address.
    """

    def __init__(
        self, url: str = DEFAULT_URL, api_key: str = "", *, timeout: float = 60.0, voice: Voice = Voice.REST
    ) -> None:
        self._transport = AsyncTransport(url, api_key, timeout, voice)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
