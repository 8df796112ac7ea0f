"""Looks after everything that the service needs besides its database: disks, object stores, broker, workers.

Without one of them it still answers: it is degraded, and ready. They are looked at beside all requests, so that one
that is slow or frozen holds nobody up who asks.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import structlog

from datalens_service.adapters.startup import check_all_disks, list_disks
from datalens_service.base import logs
from datalens_service.base.errors import DatalensError
from datalens_service.base.settings import Settings
from datalens_service.store.patience import impatient

DISK: Final = "disk"
_PAUSE_SECONDS: Final = 10.0
_log = structlog.get_logger("datalens.surroundings")


class Surroundings:
    """A thread that looks every ten seconds.

    Args:
        checks: Check of each part besides the disks, which raises where the part is not in order.

    Attributes:
        faults: Sentences for a reader by the part that is not in order; replaced by each look.
    """

    def __init__(self, settings: Settings, checks: Mapping[str, Callable[[], None]], stopping: threading.Event) -> None:
        self.faults: Mapping[str, str] = MappingProxyType({})
        self._settings = settings
        self._checks: dict[str, Callable[[], None]] = {DISK: partial(check_all_disks, settings), **checks}
        self._stopping = stopping
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="surroundings", daemon=True)

    @property
    def parts(self) -> tuple[str, ...]:
        """Everything that is looked at."""
        return tuple(self._checks)

    def start(self) -> None:
        """Start to look, in the background."""
        self._thread.start()

    def look(self) -> None:
        """Find out now what is not in order."""
        with self._turn, impatient():
            self._look()

    def _look(self) -> None:
        found = {part: said for part, check in self._checks.items() if (said := _complaint(check)) is not None}
        for part in found.keys() - self.faults.keys():
            _log.error("degraded", part=part, detail=found[part])
        for part in self.faults.keys() - found.keys():
            _log.info("in order again", part=part)
        self.faults = MappingProxyType(found)

    def free_bytes(self) -> dict[str, int]:
        """Room on each disk that the service writes to; one that does not answer is left out."""
        found = {}
        for name, folder in list_disks(self._settings).items():
            try:
                found[name] = shutil.disk_usage(folder).free
            except OSError:
                continue
        return found

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(_PAUSE_SECONDS)


def _complaint(check: Callable[[], None]) -> str | None:
    try:
        check()
    except DatalensError as error:
        return error.text
    except Exception as error:  # noqa: BLE001 (a library's error about a part says that the part is not in order)
        _log.error("unexpected", **logs.outline(error))
        return "It cannot be checked."
    return None
