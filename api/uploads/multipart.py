"""multipart/form-data with one file, written to where it belongs while it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from fastapi.exceptions import RequestValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException

from datalens_service.api.problems.expected_bodies import MALFORMED_FORM, NO_FILE
from datalens_service.base.errors import InvalidInput

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_TEXT_BYTES: Final = 2**18


def _unusable(code: str) -> RequestValidationError:
    """The form as a whole cannot be read."""
    return RequestValidationError([{"type": code, "loc": ("body",), "msg": ""}])


class FormReader:
    """Takes a body in chunks; file bytes go to `file`, text is kept.

    Raises:
        HTTPException: 415, the body is not multipart/form-data.
        RequestValidationError: It names no boundary.
    """

    def __init__(self, content_type: str, file_field: str, file: BinaryIO) -> None:
        self._file_field, self._file = file_field, file
        self._header, self._value, self._disposition, self._name = b"", b"", b"", ""
        self._text: dict[str, bytearray] = {}
        self._text_bytes = 0
        self._ended = False
        self.has_file, self.file_name = False, ""
        self._parser = MultipartParser(_boundary(content_type), self._callbacks())

    @property
    def fields(self) -> dict[str, str]:
        """Text parts by name."""
        try:
            return {name: value.decode() for name, value in self._text.items()}
        except UnicodeDecodeError:
            raise InvalidInput("The ⟦members⟧ beside the file must be UTF-8 text.") from None

    def write(self, data: bytes) -> None:
        """Take the next chunk of the body.

        Raises:
            RequestValidationError: The body is malformed.
            InvalidInput: It has a part twice, or too much text.
        """
        try:
            self._parser.write(data)
        except FormParserError:
            raise _unusable(MALFORMED_FORM) from None

    def finish(self) -> None:
        """Say that the body is complete.

        Raises:
            RequestValidationError: It is not, or it has no file.
        """
        if not self._ended:
            raise _unusable(MALFORMED_FORM)
        if not self.has_file:
            raise _unusable(NO_FILE)
        self._file.flush()

    def _callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_data,
            "on_end": self._on_end,
        }

    def _begin(self) -> None:
        self._disposition = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        if self._name in self._text or (self.has_file and self._name == self._file_field):
            raise InvalidInput("A ⟦member⟧ occurs twice; send each once.")
        if self._name == self._file_field:
            self.has_file, self.file_name = True, options.get(b"filename", b"").decode(errors="replace")
        else:
            self._text[self._name] = bytearray()
            self._count(len(self._name))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self._file_field:
            self._file.write(data[start:end])
            return
        self._text[self._name] += data[start:end]
        self._count(end - start)

    def _count(self, size: int) -> None:
        """Add to what is kept in memory, names included: a form may have any number of parts."""
        self._text_bytes += size
        if self._text_bytes > _TEXT_BYTES:
            raise InvalidInput(f"The ⟦members⟧ beside the file are longer than {_TEXT_BYTES} bytes.")

    def _on_end(self) -> None:
        self._ended = True


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise HTTPException(415)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise _unusable(MALFORMED_FORM)
    return boundary
