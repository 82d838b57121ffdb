"""A version's rows as a download: the child writes them, and they go on to the browser as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

from controlplane.datasets import reader_process
from controlplane.datasets.deriving import as_filter
from controlplane.datasets.errors import DatasetError
from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.reader import files
from controlplane.datasets.reader.filtering import RowFilter
from controlplane.http.streams import file_answer

JSONL, PARQUET = "jsonl", "parquet"
TYPES = {JSONL: "application/x-ndjson", PARQUET: "application/vnd.apache.parquet"}


def export(
    request: HttpRequest, version: DatasetVersion, kind: str, wanted: RowFilter | Mapping[str, Any] | None = None
) -> HttpResponseBase:
    """The download, JSON Lines or Parquet, of all rows or of those that a filter means.

    Raises DatasetError while there is still an answer to give; a failure later breaks the download off.
    """
    if version.status != DatasetVersion.READY:
        raise DatasetError("This version has no rows yet.")
    if kind not in TYPES:
        raise DatasetError("A version is exported as JSON Lines or as Parquet.")
    asked = as_filter(wanted)
    save_as = file_name(version, kind, filtered=bool(asked))
    if kind == PARQUET and not asked:
        try:
            return file_answer(request, (version.folder / files.ROWS).open("rb"), TYPES[kind], save_as=save_as)
        except OSError as error:
            raise DatasetError("The rows of this version can't be read on the server.") from error
    pieces = reader_process.stream(version.folder, "export", {"format": kind, "filter": asked.as_dict()})
    first = next(pieces, b"")  # what can't begin fails here
    body = _whole(first, pieces)
    answer = StreamingHttpResponse(
        _threaded(body) if isinstance(request, ASGIRequest) else body, content_type=TYPES[kind]
    )
    answer.headers["Content-Disposition"] = content_disposition_header(True, save_as) or "attachment"
    return answer


def file_name(version: DatasetVersion, kind: str, *, filtered: bool) -> str:
    """As a browser saves it: letters, digits and dashes only."""
    name = re.sub(r"[^\w.-]+", "-", version.dataset.name).strip("-.") or "dataset"
    return f"{name}-v{version.number}{'-filtered' if filtered else ''}.{kind}"


def _whole(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


async def _threaded(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Under ASGI Django would gather a plain iterator in memory first."""
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        # Also when the browser goes away in the middle: the child must not write for nobody.
        close = getattr(pieces, "close", None)
        if close is not None:
            await asyncio.to_thread(close)
