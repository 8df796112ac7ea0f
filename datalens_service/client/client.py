"""The client: a connection and all methods of the API."""

from typing import Self

from datalens_service.base.wording import Voice
from datalens_service.client.addresses import DEFAULT_URL
from datalens_service.client.administration import AdministrationOperations
from datalens_service.client.audits import AuditOperations
from datalens_service.client.classifiers import ClassifierOperations
from datalens_service.client.datasets import DatasetOperations
from datalens_service.client.jobs import JobOperations
from datalens_service.client.journals import JournalOperations
from datalens_service.client.releases import ReleaseOperations
from datalens_service.client.transport import Transport


class Client(
    DatasetOperations,
    JobOperations,
    ReleaseOperations,
    ClassifierOperations,
    AuditOperations,
    JournalOperations,
    AdministrationOperations,
):
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
