"""What a process gives up before it opens a file from a stranger. There is no way back.

Everywhere: limits on memory, processor time, size and number of files. On Linux also, by the kernel: no sockets, no
other programs, no looking into other processes (seccomp), and no writing outside one folder (Landlock).
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | 1  # errno EPERM

_LOAD, _JUMP_EQUAL, _JUMP_FROM, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_OTHER_ABI: Final = 0x40000000
"""From here on, numbers of x86 mean the calls of another interface, past a list of numbers."""

_FORBIDDEN: Final = {
    # socket, connect, bind, execve, execveat, ptrace, process_vm_readv, process_vm_writev, kill, mount, unshare,
    # setns, bpf, keyctl, open_by_handle_at, io_uring_setup (which has sockets of its own), pidfd_getfd
    "x86_64": (
        0xC000003E,
        (41, 42, 49, 59, 322, 101, 310, 311, 62, 165, 272, 308, 321, 250, 304, 425, 438),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 203, 200, 221, 281, 117, 270, 271, 129, 40, 97, 268, 280, 219, 265, 425, 438),
    ),
}

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_WRITES: Final = 0b1_1111_1111_0010
"""All rights of Landlock's first version but execute, read file and read folder."""


def confine(folder: Path, *, memory_bytes: int, cpu_seconds: int, file_bytes: int) -> None:
    """Confine this process for the rest of its life.

    Args:
        folder: The only place it can write to.
        memory_bytes: Address space it may have.
        cpu_seconds: Processor time after which it is killed.
        file_bytes: Largest file it may write.
    """
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_NOFILE, 256)
    _limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _write_only_to(libc, folder)
        _forbid_calls(libc)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _call(function: Callable[..., int], *arguments: object) -> int:
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "The process could not be confined.")
    return result


def _write_only_to(libc: ctypes.CDLL, folder: Path) -> None:
    """Landlock; kernels from before 5.13 do not have it."""
    if libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION) < 1:
        return
    handled = ctypes.create_string_buffer(struct.pack("=Q", _WRITES), 8)
    rules = _call(libc.syscall, _LANDLOCK_CREATE, handled, ctypes.c_size_t(8), 0)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    allowed = ctypes.create_string_buffer(struct.pack("=Qi", _WRITES, place), 12)
    _call(libc.syscall, _LANDLOCK_ADD, rules, _PATH_BENEATH, allowed, 0)
    _call(libc.syscall, _LANDLOCK_RESTRICT, rules, 0)
    os.close(place)
    os.close(rules)


def _forbid_calls(libc: ctypes.CDLL) -> None:
    """seccomp: what is on the list fails with EPERM."""
    if platform.machine() not in _FORBIDDEN:
        return
    program = _program(*_FORBIDDEN[platform.machine()])
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    _call(libc.prctl, _PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0)


def _program(architecture: int, forbidden: tuple[int, ...]) -> list[bytes]:
    """Instructions of the kernel's packet filter: refuse another architecture and every forbidden call."""
    refuse = len(forbidden) + 1
    checks = [_step(_JUMP_EQUAL, number, yes=refuse - place) for place, number in enumerate(forbidden, 1)]
    return [
        _step(_LOAD, _ARCHITECTURE_OFFSET),
        _step(_JUMP_EQUAL, architecture, no=len(forbidden) + 3),
        _step(_LOAD, _NUMBER_OFFSET),
        _step(_JUMP_FROM, _OTHER_ABI, yes=len(forbidden) + 1),
        *checks,
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _REFUSE),
    ]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
