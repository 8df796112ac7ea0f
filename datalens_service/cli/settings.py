"""Settings of a deployment, from options and environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datalens_service.settings import Settings


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
