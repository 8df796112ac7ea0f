"""How long a client goes on when the service does not answer, and what it says when an upload cannot be used."""

from __future__ import annotations

import time
from typing import Final

from datalens_service.client.replies import ValidationInfo
from datalens_service.client.transport import ClientError, ServiceUnreachable

_PASSING: Final = ("upload-offset-mismatch", "upload-locked", "checksum-mismatch", "store-unavailable")
"""Problems that asking again may mend."""

_LONGEST_PAUSE: Final = 5.0


class Patience:
    """Counts the time since something went well.

    Args:
        seconds: After so long without, it is given up.
        pause: Seconds before the first repetition; they double.
    """

    def __init__(self, seconds: float = 120.0, pause: float = 0.25) -> None:
        self._seconds, self._first = seconds, pause
        self.renew()

    def renew(self) -> None:
        """Something went well."""
        self._pause = self._first
        self._since = time.monotonic()

    def after(self, error: ClientError) -> float:
        """Seconds to wait before trying again.

        Raises:
            ClientError: `error` itself, if it will not pass or has lasted too long.
        """
        passing = isinstance(error, ServiceUnreachable) or error.slug in _PASSING
        if not passing or time.monotonic() - self._since > self._seconds:
            raise error
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return pause


def refusal(found: ValidationInfo) -> ClientError:
    """The error that says what is wrong with an upload; its `problem` names the files."""
    problem = found.model_dump(mode="json", include={"dataset_id", "bad_files", "bad_count", "checked"})
    detail = found.detail or "The upload cannot be used."
    return ClientError(found.code or "dataset-invalid", "Not a usable labelled image set", detail, problem=problem)
