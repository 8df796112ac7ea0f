"""Processes of this machine, whoever started them."""

import time

import psutil


def alive(process_id: int) -> bool:
    """Whether there is such a process, a dead one that nobody has collected aside."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def parent_of(process_id: int) -> int:
    """The process that started another one; of one that has ended the first process, as of an orphan."""
    try:
        return psutil.Process(process_id).ppid()
    except psutil.NoSuchProcess:
        return 1


def wait_until_gone(process_ids: list[int], seconds: float) -> list[int]:
    """The processes that are still there after `seconds`."""
    until = time.monotonic() + seconds
    while (left := [process_id for process_id in process_ids if alive(process_id)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left
