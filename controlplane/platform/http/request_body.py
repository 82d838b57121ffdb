"""Bodies of API requests: size limits, gzip, strict decoding; and the bearer token."""

import json
import re
import zlib
from typing import TypeVar

import msgspec
from django.http import HttpRequest

T = TypeVar("T")
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


class BadBody(Exception):
    """A request's body that can't be used."""

    def __init__(self, status: int, what: str, *, where: str = "body", fix: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix


def bearer(request: HttpRequest) -> str:
    """Return the token of the Authorization header, or ""."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def body_of(request: HttpRequest, limit: int) -> bytes:
    """Return the body, decompressed. Raises BadBody above `limit` bytes."""
    if int(request.headers.get("Content-Length") or 0) > limit:
        raise _too_large(limit)
    return unpacked(request.body, request.headers.get("Content-Encoding", "identity"), limit)


def unpacked(body: bytes, coding: str, limit: int) -> bytes:
    """Return the decompressed body. `coding`: the header Content-Encoding. Raises BadBody above `limit` bytes."""
    if coding == "gzip":
        unpack = zlib.decompressobj(wbits=31)
        try:
            body = unpack.decompress(body, limit + 1)
        except zlib.error as error:
            raise BadBody(400, f"The body is not gzip: {error}.") from None
        if len(body) <= limit and not unpack.eof:
            raise BadBody(400, "The gzip body is cut short.")
    elif coding != "identity":
        raise BadBody(415, f"Content-Encoding {coding} is not understood.", fix="Use gzip or none.")
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> BadBody:
    return BadBody(413, f"The body is larger than {limit} bytes.", fix="Send less at a time.")


def decode(body: bytes, kind: type[T]) -> T:
    """Decode JSON as a `kind`. Raises BadBody with the place, such as `$.lines[3].seq`."""
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
    """Decode JSON with NaN or unpaired surrogates, which Python writes: such a line must not block the lines after
    it."""
    try:
        value = json.loads(body, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise BadBody(400, f"The body is not JSON: {error}.") from None
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise BadBody(400, f"{error}.") from None
