"""Ids of jobs and data sets, by id or by the name that their owner gave them."""

from collections.abc import Iterable
from typing import Final, Protocol

from datalens_service.client import Client, ClientError

_JOB: Final = "job_"
_DATASET: Final = "ds_"
_REMOVED: Final = frozenset({"deleted", "invalid"})


class _Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


def job_id(client: Client, named: str) -> str:
    """Id of the job that is named, or whose name this is.

    Raises:
        ClientError: No job has this name, or several have.
    """
    return named if named.startswith(_JOB) else _only("job", named, client.jobs())


def dataset_id(client: Client, named: str) -> str:
    """Id of the data set that is named, or whose name this is; a deleted one has its name if no other one has it.

    Raises:
        ClientError: No data set has this name, or several have.
    """
    if named.startswith(_DATASET):
        return named
    namesakes = [dataset for dataset in client.datasets() if dataset.name == named]
    usable = [dataset for dataset in namesakes if dataset.state not in _REMOVED]
    return _only("data set", named, usable or namesakes)


def _only(kind: str, name: str, items: Iterable[_Named]) -> str:
    ids = [item.id for item in items if item.name == name]
    if not ids:
        raise ClientError("not-found", "Not found", f"No {kind} has the id or the name {name!r}.", status=404)
    if len(ids) > 1:
        raise ClientError(
            "state-conflict", "The object's state forbids this",
            f"{len(ids)} of your {kind}s are called {name!r}: name one of {', '.join(ids)}.",
        )  # fmt: skip
    return ids[0]
