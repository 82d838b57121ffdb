"""Bodies of API requests (size limits, gzip, strict decoding) and their bearer token."""

import json
import re
import zlib
from typing import TypeVar

import msgspec
from django.http import HttpRequest

T = TypeVar("T")
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


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
    """Return the decompressed body of a request. Raises BadBody above `limit` bytes."""
    if int(request.headers.get("Content-Length") or 0) > limit:
        raise _too_large(limit)
    return unpacked(request.body, request.headers.get("Content-Encoding", "identity"), limit)


def unpacked(body: bytes, coding: str, limit: int) -> bytes:
    """Return the decompressed body. `coding`: the Content-Encoding header. Raises BadBody above `limit` bytes."""
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


def decode(body: bytes, kind: type[T]) -> T:
    """Decode JSON as a `kind`. Raises BadBody with the place of the error, such as `$.lines[3].seq`."""
    if b"\\u0000" in body:
        # PostgreSQL can't store NUL in text, and completions may contain one.
        body = _NUL.sub(rb"\1\\ufffd", body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise BadBody(400, f"{message}.", where=where.strip("`") or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_lax(body, kind)


def _decode_lax(body: bytes, kind: type[T]) -> T:
    """Decode JSON with NaN or unpaired surrogates, which Python may write, because such a line must not block the lines
    after it."""
    try:
        value = json.loads(body, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise BadBody(400, f"The body is not JSON: {error}.") from None
    cleaned = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return msgspec.json.decode(cleaned, type=kind)
    except msgspec.DecodeError as error:
        raise BadBody(400, f"{error}.") from None
