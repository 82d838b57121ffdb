"""Files as responses, streamed under WSGI and ASGI or limited to a requested range; safe cells of CSV files."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, Any

from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

BLOCK = 256 * 2**10
_RANGE = re.compile(r"bytes=(?=\d|-\d)(\d{0,18})-(\d{0,18})")


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV file. Text that a spreadsheet would run as a formula gets an apostrophe."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


def yaml_download(text: str, name: str) -> HttpResponse:
    """Return a response that downloads a document as the file `name`.yaml."""
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.yaml"'
    return response


def file_response(request: HttpRequest, file: IO[bytes], content_type: str, *, save_as: str = "") -> HttpResponseBase:
    """Return a response with the rest of an open file. The response closes the file."""
    if not isinstance(request, ASGIRequest):
        return FileResponse(file, as_attachment=bool(save_as), filename=save_as, content_type=content_type)
    return _streamed(request, file, os.fstat(file.fileno()).st_size - file.tell(), content_type, save_as)


def resumable_response(
    request: HttpRequest, file: IO[bytes], content_type: str, *, save_as: str, etag: str
) -> HttpResponseBase:
    """Return a response with a file, or with the range that a Range header requests, so that interrupted downloads can
    be resumed.

    `etag` is a quoted string that identifies exactly these bytes.
    """
    size = os.fstat(file.fileno()).st_size
    byte_range = _range_of(request, size, etag)
    if byte_range is None:
        file.close()
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    start, end = byte_range
    file.seek(start)
    response = _streamed(request, file, end - start, content_type, save_as)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["ETag"] = etag
    if end - start < size:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return response


def _range_of(request: HttpRequest, size: int, etag: str) -> tuple[int, int] | None:
    """Return the start and end of the requested range in bytes, or None if the file has no such range.

    A header with several ranges, or for another version of the file, is ignored.
    """
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if match is None or request.headers.get("If-Range", etag) != etag:
        return 0, size
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
    else:
        start, end = max(0, size - int(last)), size
    return (start, end) if start < end else None


def _streamed(
    request: HttpRequest, file: IO[bytes], length: int, content_type: str, save_as: str
) -> StreamingHttpResponse:
    blocks = _blocks(file, 0 if request.method == "HEAD" else length)
    # Under ASGI Django would first collect a plain iterator in memory, and the file may be a gigabyte.
    body = _threaded(blocks) if isinstance(request, ASGIRequest) else blocks
    response = StreamingHttpResponse(body, content_type=content_type)
    closers: list[Callable[[], None]] = response._resource_closers  # type: ignore[attr-defined]  # as FileResponse does
    closers.append(file.close)  # the body may never be read
    response.headers["Content-Length"] = str(length)
    if header := content_disposition_header(bool(save_as), save_as):
        response.headers["Content-Disposition"] = header
    return response


def _blocks(file: IO[bytes], length: int) -> Iterator[bytes]:
    while length > 0 and (block := file.read(min(BLOCK, length))):
        length -= len(block)
        yield block


async def _threaded(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while block := await asyncio.to_thread(next, blocks, b""):
        yield block
