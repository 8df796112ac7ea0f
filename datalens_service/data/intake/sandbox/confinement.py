"""The rights that a process gives up before it opens a file from a stranger. There is no way back.

Everywhere: limits on memory, processor time, size and number of files. On Linux the kernel also kills a process that
asks for a socket, for another process or for control over one (seccomp), and lets it read files in few places and write
them in one (Landlock).
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_UNKNOWN_CALL: Final = 0x00050000 | 38  # errno ENOSYS

_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FLAGS_OFFSET = 0, 4, 16
_OTHER_ABI: Final = 0x40000000
"""From here on, numbers of x86 mean the calls of another interface, past a list of numbers."""

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORBIDDEN: Final = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    # It has sockets of its own.
    "io_uring_setup": (425, 425),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "prlimit64": (302, 261),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
}
"""Calls by their numbers on both architectures."""

_CLONE, _CLONE3 = (56, 220), 435
_OF_THREADS: Final = 0x10000

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_RIGHTS: Final = 0b1_1111_1111_1110
"""All of Landlock's first version but execute."""

_READ_FILE, _READ_FOLDER = 0b100, 0b1000
_PROGRAM_PLACES: Final = ("/usr", "/lib", "/lib64", "/opt", "/nix/store")
_LIBRARY_FOLDERS: Final = ("site-packages", "dist-packages")


def confine(
    folder: Path, *, memory_bytes: int, cpu_seconds: int, file_bytes: int, readable: Path | None = None
) -> None:
    """Confine this process for the rest of its life.

    Args:
        folder: The only place it can write to.
        readable: A place it can read, beside that and programs.
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
        _confine_files(libc, folder, readable)
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


def _confine_files(libc: ctypes.CDLL, folder: Path, readable: Path | None) -> None:
    """Restrict files by Landlock, which kernels from before 5.13 do not have."""
    if libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION) < 1:
        return
    handled = ctypes.create_string_buffer(struct.pack("=Q", _RIGHTS), 8)
    rules = _call(libc.syscall, _LANDLOCK_CREATE, handled, ctypes.c_size_t(8), 0)
    for place in {*_find_programs(), *([readable] if readable else [])}:
        if place.exists():
            _allow(libc, rules, place, _READ_FILE | (_READ_FOLDER if place.is_dir() else 0))
    _allow(libc, rules, folder, _RIGHTS)
    _call(libc.syscall, _LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _find_programs() -> Iterator[Path]:
    """Yield the places of modules that may be loaded when they are first needed.

    The whole of `sys.path` is too much: a checkout is on it, and the data folder may lie there.
    """
    yield from map(Path, (*_PROGRAM_PLACES, sys.prefix, sys.base_prefix))
    yield from (Path(name) for name in sys.path if Path(name).name in _LIBRARY_FOLDERS)
    yield Path(__file__).parents[3]


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int) -> None:
    place = os.open(path, os.O_PATH)
    allowed = ctypes.create_string_buffer(struct.pack("=Qi", rights, place), 12)
    _call(libc.syscall, _LANDLOCK_ADD, rules, _PATH_BENEATH, allowed, 0)
    os.close(place)


def _forbid_calls(libc: ctypes.CDLL) -> None:
    """Let seccomp kill this process if it makes a call on the list."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return
    column = tuple(_ARCHITECTURES).index(machine)
    numbers = tuple(number for call in FORBIDDEN.values() if (number := call[column]) is not None)
    program = _program(_ARCHITECTURES[machine], numbers, _CLONE[column])
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    _call(libc.prctl, _PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0)


def _program(architecture: int, forbidden: tuple[int, ...], clone: int) -> list[bytes]:
    """Return the filter for the kernel: no other architecture, no forbidden call, and no clone but a thread.

    A filter cannot look into the flags of clone3; it answers that there is none, and callers fall back to clone.
    """
    kill = len(forbidden) + 4
    checks = [_step(_JUMP_EQUAL, number, yes=kill - place) for place, number in enumerate(forbidden)]
    return [
        _step(_LOAD, _ARCHITECTURE_OFFSET),
        _step(_JUMP_EQUAL, architecture, no=kill + 3),
        _step(_LOAD, _NUMBER_OFFSET),
        _step(_JUMP_FROM, _OTHER_ABI, yes=kill + 1),
        *checks,
        _step(_JUMP_EQUAL, _CLONE3, yes=5),
        _step(_JUMP_EQUAL, clone, no=2),
        _step(_LOAD, _FLAGS_OFFSET),
        _step(_JUMP_SET, _OF_THREADS, no=1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _KILL),
        _step(_RETURN, _UNKNOWN_CALL),
    ]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
