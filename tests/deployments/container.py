"""What a container engine does to a program, as far as a machine without one can: no root, no capability, no disk.

`unshare --mount --net --propagation private python container.py USER FOLDERS VOLUME SCRIPT` runs a shell script as a
service of docker-compose.yml runs: as `uid:gid`, without capabilities and without a way to get one, on a read-only
root, with the temporary folders of the service (`:` between them) and one volume. Its network is its own, and what it
leaves behind ends with it.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

VOLUME = Path("/srv")
"""Where the volume is, and the script begins."""
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def contain(user: str, temporary: str, volume: str, script: str) -> None:
    """Mount what a container has, give up all rights, and become the script."""
    uid, gid = user.split(":")
    for path in [Path(volume), *Path(volume).rglob("*")]:
        os.chown(path, int(uid), int(gid), follow_symlinks=False)
    _mount("--bind", volume, str(VOLUME))
    _name_user(VOLUME / "passwd", uid, gid)
    for folder in temporary.split(":"):
        _mount("--types", "tmpfs", "--options", "mode=1777", "tmpfs", folder)
    _mount("--options", "remount,bind,ro", "/")
    os.chdir(VOLUME)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    rights = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
    rights += ["--bounding-set=-all", "--inh-caps=-all"]
    os.execvp("setpriv", ["setpriv", *rights, "bash", "-euc", script])  # noqa: S606


def _name_user(path: Path, uid: str, gid: str) -> None:
    """Give the number a name, as the image does: PostgreSQL looks its user up."""
    path.write_text(f"{Path('/etc/passwd').read_text()}contained:x:{uid}:{gid}::/:/bin/sh\n")
    _mount("--bind", str(path), "/etc/passwd")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    contain(*sys.argv[1:])
