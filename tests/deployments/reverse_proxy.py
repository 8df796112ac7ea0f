"""A reverse proxy with TLS in front of a service, set up as docs/deploy.md says."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from certificates import issue_certificate
from deployments.redis import wait_for_port
from other_programs import find_program
from ports import free_port

ROOT_PATH: Final = "/datalens"
"""Of the documentation."""

_PAGE: Final = Path(__file__).parents[2] / "docs" / "deploy.md"
_SERVICE: Final = "127.0.0.1:8000"


class ReverseProxy:
    """A server that shows the service at `url`.

    Args:
        program: `nginx` or `caddy`.
        folder: For its files.
        port: Of the service.
        change: Of the documented lines.
    """

    def __init__(self, program: str, folder: Path, port: int, change: Callable[[str], str] = str) -> None:
        self._program = find_program(program)
        self.certificate = folder / "proxy.pem"
        issue_certificate(self.certificate)
        self._port = free_port()
        lines = change(documented(program)).replace(_SERVICE, f"127.0.0.1:{port}")
        command = {"nginx": self._nginx, "caddy": self._caddy}[program](lines, folder)
        with (folder / f"{program}.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder)})
        wait_for_port(self._port)

    @property
    def url(self) -> str:
        return f"https://localhost:{self._port}{ROOT_PATH}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _nginx(self, lines: str, folder: Path) -> list[str]:
        lines = re.sub(r"listen 443", f"listen 127.0.0.1:{self._port}", lines)
        lines = re.sub(r"(ssl_certificate(?:_key)?) .*;", rf"\1 {self.certificate};", lines)
        temporary = "".join(
            f"{one}_temp_path {folder}/{one};" for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        path = folder / "nginx.conf"
        path.write_text(f"user root; pid {folder}/pid; events {{}} http {{ access_log off; {temporary} {lines} }}")
        return [self._program, "-c", str(path), "-e", "stderr", "-g", "daemon off;"]

    def _caddy(self, lines: str, folder: Path) -> list[str]:
        tls = f"localhost:{self._port} {{\n    tls {self.certificate} {self.certificate}"
        path = folder / "Caddyfile"
        options = "{\n    admin off\n    auto_https disable_redirects\n"
        path.write_text(lines.replace("{\n", options, 1).replace("example.org {", tls))
        return [self._program, "run", "--config", str(path), "--adapter", "caddyfile"]


def documented(language: str) -> str:
    """The block of the page in this language."""
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)
