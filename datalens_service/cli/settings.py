"""Settings of a deployment, from options and environment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from datalens_service.errors import InvalidInput

if TYPE_CHECKING:
    from datalens_service.settings import Settings


def load_service_settings(
    data_dir: Path, host: str | None = None, port: int | None = None, root_path: str | None = None
) -> Settings:
    """The environment's settings, with what the command line says instead.

    Raises:
        InvalidInput: A variable or option is unusable.
    """
    from datalens_service.settings import Settings

    with _convert_validation_errors():
        environment = Settings()
        return Settings(
            data_dir=data_dir,
            host=host or environment.host,
            port=port or environment.port,
            root_path=environment.root_path if root_path is None else root_path,
        )


def load_embedded_settings(data_dir: Path) -> Settings:
    """A store of its own in `data_dir`, whatever service the environment describes.

    Raises:
        InvalidInput: A variable is unusable.
    """
    from datalens_service.settings import EmbeddedSettings

    with _convert_validation_errors():
        return EmbeddedSettings(data_dir=data_dir, database_url="", ledger_log=None, executor="local", broker_url=None)


@contextmanager
def _convert_validation_errors() -> Generator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = "".join(f"DATALENS_{part}: ".upper() for part in first["loc"])
        raise InvalidInput(f"{location}{first['msg'].removeprefix('Value error, ')}") from error
