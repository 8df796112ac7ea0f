"""What a detector raises."""

from collections.abc import Generator
from contextlib import contextmanager

from datalens_service.base.errors import DatalensError


class Alarm(AssertionError):
    """A guarantee is broken; the sentence says which."""


def expect(holds: object, guarantee: str) -> None:
    """Sound the alarm unless `holds`."""
    if not holds:
        raise Alarm(guarantee)


@contextmanager
def refused(error: type[DatalensError], guarantee: str) -> Generator[None]:
    """Sound the alarm unless the block is refused with `error`."""
    try:
        yield
    except error:
        return
    raise Alarm(guarantee)
