"""Which service a command talks to, and with which key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from datalens_service.cli.options import DEFAULT_DATA_DIR
from datalens_service.client import Client, is_loopback
from datalens_service.voices import Voice

if TYPE_CHECKING:
    from datalens_service.settings import Settings

KEY_FILE: Final = "api-key"
"""Name of the file in data_dir in which `datalens serve` leaves its first key, readable by its user only.

Whoever can read it can read the private records beside it, so it opens no further door.
"""


def connect(url: str, api_key: str) -> Client:
    """A client for `url`.

    Args:
        api_key: Empty takes the key file of this machine's service, which is offered to loopback only.
    """
    return Client(url, api_key or (_key_from_file() if is_loopback(url) else ""), voice=Voice.COMMAND_LINE)


def _key_from_file() -> str:
    path = Path(os.environ.get("DATALENS_DATA_DIR", DEFAULT_DATA_DIR)) / KEY_FILE
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
