"""An upload of three gigabytes in both ways, beside a plain server and `dd` that write as much to the same disk."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import httpx2

from datalens_service.api.uploads.tus import MEDIA_TYPE, VERSION
from deployments.stack import CeleryStack
from ports import free_port

from .served import Figures, served

_BLOCK = bytes(range(256)) * 2**12
_BLOCKS = 3 * 2**10
_LENGTH = len(_BLOCK) * _BLOCKS
_MOST_MEBIBYTES = 64
_PLAIN_SERVER = """
import http.server, shutil, sys, tempfile
class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
            while left:
                left -= file.write(self.rfile.read(min(left, 2**16)))
        self.send_response(204)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def large_upload(folder: Path) -> Figures:
    """Its content is no data set: it is received as a whole and refused."""
    with served(folder) as stack:
        memory = _read_peak(stack)
        seconds = {"dd": _time(lambda: _copy(folder)), "plain server": _time(lambda: _put(folder))}
        statuses = list[int]()
        for name, send in (("resumable", _send_resumable), ("form", _send_form)):
            seconds[name] = _time(lambda send=send: statuses.append(send(stack)))
        grown = _read_peak(stack) - memory
    figures = {"bytes": _LENGTH, "seconds": {name: round(taken, 1) for name, taken in seconds.items()}}
    figures |= {"statuses": statuses, "memory_grown_mib": round(grown, 1)}
    return figures | {"passed": statuses == [204, 422] and grown <= _MOST_MEBIBYTES}


def _time(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _read_peak(stack: CeleryStack) -> float:
    """Of the memory of the API, in MiB."""
    assert stack.api is not None
    status = Path(f"/proc/{stack.api.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


def _copy(folder: Path) -> None:
    copy = folder / "copy"
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={copy}", "bs=1M", f"count={_BLOCKS}", "conv=fsync"], check=True, capture_output=True
    )
    copy.unlink()


def _put(folder: Path) -> None:
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-c", _PLAIN_SERVER, str(folder), str(port)], stderr=subprocess.DEVNULL
    ) as server:
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=8), timeout=600) as http:
            headers = {"Content-Length": str(_LENGTH)}
            http.put(f"http://127.0.0.1:{port}", content=repeat(_BLOCK, _BLOCKS), headers=headers).raise_for_status()
        server.kill()


def _send_resumable(stack: CeleryStack) -> int:
    """By tus, as one piece; it is given up then."""
    with _client(stack) as http:
        made = http.post("/v1/uploads", headers={"Upload-Length": str(_LENGTH)}).headers["Location"]
        headers = {"Upload-Offset": "0", "Content-Type": MEDIA_TYPE, "Content-Length": str(_LENGTH)}
        status = http.patch(made, content=repeat(_BLOCK, _BLOCKS), headers=headers).status_code
        http.delete(made)
    return status


def _send_form(stack: CeleryStack) -> int:
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="large.npz"\r\n\r\n'
    tail = b"\r\n--edge--\r\n"

    def body() -> Iterator[bytes]:
        yield head
        yield from repeat(_BLOCK, _BLOCKS)
        yield tail

    length = str(len(head) + _LENGTH + len(tail))
    headers = {"Content-Type": "multipart/form-data; boundary=edge", "Content-Length": length}
    with _client(stack) as http:
        return http.post("/v1/datasets", content=body(), headers=headers).status_code


def _client(stack: CeleryStack) -> httpx2.Client:
    return httpx2.Client(base_url=stack.url, headers=stack.headers | {"Tus-Resumable": VERSION}, timeout=600)
