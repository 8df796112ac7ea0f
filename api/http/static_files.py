"""Styles and scripts of the pages and Swagger UI. No build step: what lies in `static/` is what browsers get."""

import os
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER: Final = Path(__file__).parents[1] / "pages" / "static"


class StaticFolder(StaticFiles):
    """The folder, asked for anew at each visit so that an upgraded service is not shown with old scripts."""

    def __init__(self) -> None:
        super().__init__(directory=_FOLDER, packages=[("fastapi_swagger", "resources")])

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """A file, or 304 for a browser that has it."""
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
