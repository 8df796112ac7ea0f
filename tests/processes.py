"""Processes of this machine, whoever started them."""

import time
from pathlib import Path


def alive(process_id: int) -> bool:
    """Whether there is such a process, a dead one that nobody has collected aside."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def parent_of(process_id: int) -> int:
    """The process that started another one; of one that has ended the first process, as of an orphan."""
    try:
        return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 1


def wait_until_gone(process_ids: list[int], seconds: float) -> list[int]:
    """The processes that are still there after `seconds`."""
    until = time.monotonic() + seconds
    while (left := [process_id for process_id in process_ids if alive(process_id)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left
