"""Events of a job out of a stream of lines (Server-Sent Events)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from datalens_service.client.replies import Event


class EventLines:
    """Puts the lines of a stream together.

    Args:
        last: Number of the last event that is known.

    Attributes:
        last: Number of the last event that came.
        ended: Whether the job has, so that nothing follows.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.ended = False
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[Event]:
        """Take a line; the event that it completes, if it does."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            try:
                event = Event.model_validate_json(data)
            except ValidationError:
                return
            self.last, self.ended = event.id, event.ended
            yield event

    def restart(self) -> None:
        """Forget half an event of a connection that broke."""
        self._data = []
