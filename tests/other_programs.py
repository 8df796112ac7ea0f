"""Programs of other projects that tests start, and what becomes of a test where one of them is missing.

DATALENS_REQUIRE_SERVICES makes tests fail that lack something; without it they are skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import pytest

_TESTS: Final = Path(__file__).parent
_PACKAGES: Final = {
    "chromium": "chromium",
    "redis-server": "redis-server",
    "initdb": "postgresql",
    "pg_restore": "postgresql-client",
    "pgbouncer": "pgbouncer",
    "nginx": "nginx-light",
    "caddy": "caddy",
    "promtool": "prometheus",
    "kubectl": "kubernetes-client",
    "busybox": "busybox",
    "systemd-analyze": "systemd",
    "strace": "strace",
    "git": "git",
    "openssl": "openssl",
}
"""Every such program, and the package of Debian that has it."""

_ELSEWHERE: Final = ("/usr/sbin", "/usr/lib/postgresql/*/bin")
"""Where Debian puts programs that are not on everybody's PATH."""

_EVERYWHERE: Final = frozenset({"bash", "git", "mount", "umount", "setpriv", "sh", "sha256sum", "true", "unshare"})
"""What a test may start as it is: a plain system with git has it."""

_found: set[str] = set()


def do_without(reason: str) -> NoReturn:
    """End a test that lacks something, for the reason given."""
    if os.environ.get("DATALENS_REQUIRE_SERVICES"):
        pytest.fail(f"{reason}, and DATALENS_REQUIRE_SERVICES is set")
    pytest.skip(reason)


def find_program(name: str, *others: str) -> str:
    """The path of an installed program, which may have other names; where it is missing, the test ends."""
    folders = [str(folder) for pattern in _ELSEWHERE for folder in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
    found = next(filter(None, (shutil.which(one, path=places) for one in (name, *others))), None)
    if found is None:
        do_without(f"{name} is not installed (Debian has it in the package {_PACKAGES[name]})")
    _found.add(found)
    return found


@pytest.fixture(scope="session", autouse=True)
def programs_are_looked_for() -> None:
    """From now on, a test cannot start a program that a plain system lacks before `find_program` has found it.

    What libraries and the product start is theirs to look for.
    """
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _is_called_by_a_test(sys._getframe(1)):
        program = os.fsdecode(arguments[0])
        if program not in _found and not _is_at_hand(program):
            raise AssertionError(f"{program} is started, and was not looked for with other_programs.find_program")


def _is_called_by_a_test(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename == subprocess.__file__:
        frame = frame.f_back
    return frame is not None and Path(frame.f_code.co_filename).is_relative_to(_TESTS)


def _is_at_hand(program: str) -> bool:
    """Whether it comes with the system or with Python, or was made by the test itself."""
    path = Path(program)
    ours = path.name != program and not path.is_relative_to("/usr") and not path.is_relative_to("/bin")
    return ours or path.name in _EVERYWHERE or path.name.startswith("python")
