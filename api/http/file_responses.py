"""Files as answers: a strong ETag from their content, ranges, and 304 for what the client has already.

Those of the pages have no build step: what lies in `static/`, and Swagger UI, is what browsers get.
"""

import base64
import os
from email.utils import formatdate
from pathlib import Path
from typing import Final

from fastapi import Request, Response
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from datalens_service.base.errors import NotFound

_HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    # Reports are HTML: whatever gets into one, it cannot load or run anything.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
}


def file_response(
    request: Request, path: Path, sha256: str, *, media_type: str, name: str, inline: bool = False
) -> Response:
    """Send a file, or the part of it that the request names.

    Args:
        request: Its `If-None-Match`, Range and `If-Range` are respected.
        sha256: Hash of its content, hexadecimal.
        inline: True if a browser may show it instead.

    Raises:
        NotFound: It was removed a moment ago.
    """
    etag = f'"{sha256}"'
    headers = {**_HEADERS, "ETag": etag}
    if _matches(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    try:
        stat_result = path.stat()
    except FileNotFoundError:
        raise NotFound("The file was removed.") from None
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    # To the minute: a sample grid is replaced between steps on private records.
    changed = formatdate(stat_result.st_mtime // 60 * 60, usegmt=True)
    return FileResponse(
        path,
        headers={**headers, "Repr-Digest": f"sha-256=:{digest}:", "Last-Modified": changed},
        media_type=media_type,
        filename=name,
        stat_result=stat_result,
        content_disposition_type="inline" if inline else "attachment",
    )


def _matches(if_none_match: str, etag: str) -> bool:
    etags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in etags or etag in etags


_FOLDER: Final = Path(__file__).parents[1] / "pages" / "static"


class StaticFolder(StaticFiles):
    """The folder, asked for anew at each visit so that an upgraded service is not shown with old scripts."""

    def __init__(self) -> None:
        super().__init__(directory=_FOLDER, packages=[("fastapi_swagger", "resources")])

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
