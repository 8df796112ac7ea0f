"""Which service a command talks to, and with which key."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType

from datalens_service.cli import options, output
from datalens_service.client import Client, is_loopback
from datalens_service.voices import Voice

if TYPE_CHECKING:
    from datalens_service.settings import Settings

KEY_FILE: Final = "api-key"
"""Name of the file in data_dir in which `datalens serve` leaves its first key, readable by its user only.

Whoever can read it can read the private records beside it, so it opens no further door.
"""


@dataclass(frozen=True)
class Service:
    """Which service a command asks, and how it says what came of it."""

    url: options.Url = options.DEFAULT_URL
    api_key: options.ApiKey = ""
    as_json: options.AsJson = False

    def connect(self) -> Client:
        """A client; without a key, that of this machine's service, whose file is offered to loopback only."""
        key = self.api_key or (_key_from_file() if is_loopback(self.url) else "")
        return Client(self.url, key, voice=Voice.COMMAND_LINE)

    def show(self, data: output.Result, view: RenderableType) -> None:
        """Print a result: `data` as JSON for programs, or `view` for people."""
        output.show(data, view, as_json=self.as_json)


SERVICE: Final = Service()
"""Unless the command line says otherwise."""


def _key_from_file() -> str:
    path = Path(os.environ.get("DATALENS_DATA_DIR", options.DEFAULT_DATA_DIR)) / KEY_FILE
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def load_service_settings(
    data_dir: Path, host: str | None = None, port: int | None = None, root_path: str | None = None
) -> Settings:
    """The environment's settings, with what the command line says instead.

    Raises:
        InvalidInput: A variable or option is unusable.
    """
    from datalens_service.settings import Settings, convert_validation_errors

    with convert_validation_errors():
        environment = Settings()
        return Settings(
            data_dir=data_dir,
            host=host or environment.host,
            port=port or environment.port,
            root_path=environment.root_path if root_path is None else root_path,
        )
