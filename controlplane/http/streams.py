"""A large file as a streaming response, under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import IO

from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

BLOCK = 256 * 2**10


def file_answer(request: HttpRequest, file: IO[bytes], content_type: str, *, save_as: str = "") -> HttpResponseBase:
    """The rest of an open file, which is closed at the end."""
    if not isinstance(request, ASGIRequest):
        return FileResponse(file, as_attachment=bool(save_as), filename=save_as, content_type=content_type)
    # Under ASGI Django would first collect a plain iterator in memory, and the file may be a gigabyte.
    answer = StreamingHttpResponse(_blocks(file), content_type=content_type)
    answer.headers["Content-Length"] = str(os.fstat(file.fileno()).st_size - file.tell())
    if header := content_disposition_header(bool(save_as), save_as):
        answer.headers["Content-Disposition"] = header
    return answer


async def _blocks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while block := await asyncio.to_thread(file.read, BLOCK):
            yield block
