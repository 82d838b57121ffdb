"""Bodies of API requests (size limits, gzip, strict decoding) and their bearer token."""

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from django.http import HttpRequest

from controlplane.platform.confined.messages import MAX_VALUES, has_too_many_values

T = TypeVar("T")
TEXT_LIMIT = 4 * 2**20
"""Limit of bodies with rows, documents, completions or row numbers that operators type, paste or send as JSON."""
FORM_OVERHEAD_BYTES = 2**20
"""Room in a body for the other fields of a form with a file."""
PIECE_BYTES = 2**18
"""Size of a body up to which all its lines are decoded together, while every other thread waits."""
MAX_LINES_VALUES = 4 * MAX_VALUES
"""Maximum number of values in all lines of a body."""
_LARGE_BODIES = threading.RLock()
"""Held while a large body is parsed. Several at once wouldn't be faster, and all other threads would have to wait for
each of them in turn."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadBody(Exception):
    """Error for a request body that can't be used."""

    def __init__(self, status: int, what: str, *, where: str = "body", fix: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix


def bearer(request: HttpRequest) -> str:
    """Return the bearer token of the Authorization header, or "" if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def body_of(request: HttpRequest, limit: int) -> bytes:
    """Return the decompressed body of a request. Raises BadBody if it can't be decompressed or exceeds `limit`
    bytes."""
    if int(request.headers.get("Content-Length") or 0) > limit:
        raise _too_large(limit)
    return decompress(request.body, request.headers.get("Content-Encoding", "identity"), limit)


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """Return the decompressed body, whose Content-Encoding is `coding`. Raises BadBody if it can't be decompressed or
    exceeds `limit` bytes."""
    if coding == "gzip":
        decompressor = zlib.decompressobj(wbits=31)
        try:
            body = decompressor.decompress(body, limit + 1)
        except zlib.error as error:
            raise BadBody(400, f"The body is not gzip: {error}.") from None
        if len(body) <= limit and not decompressor.eof:
            raise BadBody(400, "The gzip body is truncated.")
    elif coding != "identity":
        raise BadBody(415, f"Content-Encoding {coding} is not supported.", fix="Use gzip or none.")
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> BadBody:
    return BadBody(413, f"The body is larger than {limit} bytes.", fix="Send less at a time.")


def decode_exact(body: bytes, kind: type[T]) -> T:
    """Decode JSON whose strings name things, so that none may be changed. Raises BadBody, with status 422 for NUL and
    unpaired surrogates."""
    _refuse_many(body, MAX_VALUES)
    try:
        text = json.dumps(json.loads(body.decode("utf-8-sig", "surrogatepass")), ensure_ascii=False)
    except (ValueError, RecursionError):
        text = ""  # `decode` says what is wrong
    if _SURROGATE.search(text) or _without_nul(body) != body:
        what = "The body contains a NUL character or an unpaired surrogate, which no name or path may contain."
        raise BadBody(422, what, fix="Send valid Unicode text without NUL.")
    return decode(body, kind)


def field_value(text: str) -> Any:
    """Parse the JSON in a field of a form. Raises ValueError or RecursionError as `json.loads` does, and BadBody with
    status 413 for more than MAX_VALUES values, which aren't parsed."""
    _refuse_many(text.encode(errors="replace"), MAX_VALUES)
    return json.loads(text)


def storable_value(text: str) -> Any:
    """Parse as `field_value` does. Raises ValueError also for NaN and unpaired surrogates, which Python's parser
    accepts but databases don't."""
    value = field_value(text)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return value


def decode(body: bytes, kind: type[T]) -> T:
    """Decode JSON as a `kind`, with U+FFFD for NUL and "?" for unpaired surrogates. Raises BadBody with the place of
    the error, such as `$.lines[3].seq`, and with status 413 for more than MAX_VALUES values."""
    with _in_turn(body):
        _refuse_many(body, MAX_VALUES)
        return _decode(_without_nul(body), kind)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise BadBody(400, f"{message}.", where=where.strip("`") or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_lax(body, kind)


def decode_lines(body: bytes, kind: type[T]) -> T:
    """Decode as `decode` does, but the list `lines` of a large body line by line, so that other threads run in
    between. Only the text of each line is looked at in one piece, which is fast."""
    if len(body) <= PIECE_BYTES:
        return decode(body, kind)
    with _in_turn(body):
        return _decode_lines(body, kind)


def _decode_lines(body: bytes, kind: type[T]) -> T:
    _refuse_many(body, MAX_LINES_VALUES)
    try:
        fields, lines = _split(body)
    except msgspec.DecodeError:
        try:
            fields, lines = _split(_NOT_JSON.sub(_as_json, body))
        except msgspec.DecodeError as error:
            raise BadBody(400, f"The body is not JSON: {error}.") from None
    document: Any = decode(msgspec.json.encode(fields | {"lines": []}), kind)
    [line_kind] = get_args(get_type_hints(kind)["lines"])
    for index, line in enumerate(lines):
        try:
            document.lines.append(decode(bytes(line), line_kind))
        except BadBody as error:
            error.where = f"$.lines[{index}]{error.where.removeprefix('body').removeprefix('$')}"
            raise
    result: T = document
    return result


_NOT_JSON = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?(?:NaN|Infinity)|[^"NI-]{1,65536}+', re.DOTALL)
"""Strings, and Python's words for numbers that JSON lacks. It also matches all else, in pieces, between which other
threads run."""


def _as_json(match: re.Match[bytes]) -> bytes:
    piece = match[0]
    if piece[:1] == b'"' and b"\\ud" in piece.lower():  # perhaps an unpaired surrogate
        with suppress(ValueError):
            return json.dumps(json.loads(piece), ensure_ascii=False).encode("utf-8", "replace")
    return b"null" if piece in (b"NaN", b"Infinity", b"-Infinity") else piece


def _split(body: bytes) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]]:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return fields, msgspec.json.decode(fields.get("lines", b"[]"), type=list[msgspec.Raw])


def _in_turn(body: bytes) -> AbstractContextManager[Any]:
    return _LARGE_BODIES if len(body) > PIECE_BYTES else nullcontext()


def _refuse_many(body: bytes, limit: int) -> None:
    if has_too_many_values(body, limit):
        what = f"This has more than {limit:,} values, which is the limit, so nothing of it was read."
        raise BadBody(413, what, fix="Send less at a time.")


def _without_nul(body: bytes) -> bytes:
    """Replace escaped NULs, which PostgreSQL can't store in text, and which completions may contain."""
    if b"\\u0000" not in body or b"\0" in body:
        return body  # a plain NUL is no JSON
    # A plain NUL stands for an escaped backslash meanwhile. A pattern would take seconds for a million escapes.
    return b"".join(
        piece.replace(b"\\\\", b"\0").replace(b"\\u0000", b"\\ufffd").replace(b"\0", b"\\\\") for piece in _pieces(body)
    )


def _pieces(body: bytes) -> Iterator[bytes]:
    """Cut JSON into pieces, none of which ends within an escape, so that other threads run in between."""
    start = 0
    while start < len(body):
        end = body.find(b"\\", start + PIECE_BYTES)
        # A run of backslashes begins with an escape. A piece that is one run has pairs of them.
        piece = body[start : end if end >= 0 else None].rstrip(b"\\" if end >= 0 else b"")
        piece = piece or body[start : start + PIECE_BYTES]
        yield piece
        start += len(piece)


def _decode_lax(body: bytes, kind: type[T]) -> T:
    """Decode JSON that may contain NaN or unpaired surrogates, which Python writes, because a reported line that has
    them must not block later ones."""
    try:
        # Not bytes, of which the parser would guess the encoding.
        value = json.loads(body.decode("utf-8-sig", "surrogatepass"), parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise BadBody(400, f"The body is not JSON: {error}.") from None
    cleaned = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return msgspec.json.decode(cleaned, type=kind)
    except msgspec.DecodeError as error:
        raise BadBody(400, f"{error}.") from None
