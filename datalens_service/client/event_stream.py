"""Parser for the event stream of a job (Server-Sent Events)."""

from collections.abc import Iterator

from pydantic import ValidationError

from datalens_service.client.models import Event


class EventParser:
    """Builds events from the lines of a stream.

    Attributes:
        ended: Whether the job has ended, so that no event follows.
    """

    def __init__(self, last_id: int) -> None:
        self.last_id = last_id
        self.ended = False
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[Event]:
        """Take one line; yield the event that it completes, if any."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            try:
                event = Event.model_validate_json(data)
            except ValidationError:
                return
            self.last_id, self.ended = event.id, event.ended
            yield event

    def restart(self) -> None:
        """Drop the incomplete event of a connection that broke."""
        self._data = []
