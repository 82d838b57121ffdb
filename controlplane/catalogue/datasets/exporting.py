"""Downloads of a version's rows, streamed from the reader process to the browser."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterator

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.http.streams import file_response

JSONL, PARQUET = "jsonl", "parquet"
TYPES = {JSONL: "application/x-ndjson", PARQUET: "application/vnd.apache.parquet"}


def export(request: HttpRequest, version: DatasetVersion, kind: str, row_filter: RowFilter) -> HttpResponseBase:
    """Stream all rows, or those that pass a filter, as JSON Lines or Parquet.

    Raises DatasetError, before anything is sent, if the version has no rows or they can't be read; a later failure
    aborts the download.
    """
    if version.status != DatasetVersion.READY:
        raise DatasetError("This version has no rows yet.")
    if kind not in TYPES:
        raise DatasetError("A version can be exported as JSON Lines or as Parquet.")
    save_as = file_name(version, kind, is_filtered=bool(row_filter))
    if kind == PARQUET and not row_filter:
        try:
            return file_response(request, (version.folder / files.ROWS).open("rb"), TYPES[kind], save_as=save_as)
        except OSError as error:
            raise DatasetError("The rows of this version can't be read on the server.") from error
    pieces = reader_process.stream(version.folder, "export", {"format": kind, "filter": row_filter.as_dict()})
    first_piece = next(pieces, b"")  # errors at the start are raised here
    body = _chained(first_piece, pieces)
    response = StreamingHttpResponse(
        _threaded(body) if isinstance(request, ASGIRequest) else body, content_type=TYPES[kind]
    )
    response.headers["Content-Disposition"] = content_disposition_header(True, save_as) or "attachment"
    return response


def file_name(version: DatasetVersion, kind: str, *, is_filtered: bool) -> str:
    """Build the file name of a download, with only letters, digits, dots, dashes and underscores."""
    name = re.sub(r"[^\w.-]+", "-", version.dataset.name).strip("-.") or "dataset"
    return f"{name}-v{version.number}{'-filtered' if is_filtered else ''}.{kind}"


def _chained(first_piece: bytes, later_pieces: Iterator[bytes]) -> Generator[bytes]:
    yield first_piece
    yield from later_pieces


async def _threaded(pieces: Generator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces asynchronously, since under ASGI Django would first collect a plain iterator in memory."""
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        # The reader process must stop, also when the browser disconnects, or its connection is closed because it reads
        # nothing (ClientDeadlines).
        await asyncio.to_thread(pieces.close)
