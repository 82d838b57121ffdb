"""Parser of URL-encoded forms, like Django's, but one slice at a time.

Django's parser splits a value at its percent signs in one step. With millions of percent signs, that step would block
all threads of the process.
"""

from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.core.exceptions import TooManyFieldsSent
from django.core.files.uploadedfile import UploadedFile
from django.core.handlers.asgi import ASGIRequest
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

SLICE_BYTES = 64 * 2**10
_ESCAPE_BYTES = 3
_FORM = "application/x-www-form-urlencoded"


class FormRequest(ASGIRequest):
    """A request whose URL-encoded form is parsed one slice at a time. Other forms are parsed by Django."""

    _read_started: bool

    def _load_post_and_files(self) -> None:
        is_readable = hasattr(self, "_body") or not self._read_started
        is_utf8 = self.encoding is None or self.encoding.lower() == "utf-8"
        if self.method == "POST" and self.content_type == _FORM and is_readable and is_utf8:
            self._post = fields_of(self.body)
            self._files: MultiValueDict[str, UploadedFile[bytes]] = MultiValueDict()
        else:
            super()._load_post_and_files()


def fields_of(body: bytes) -> QueryDict:
    """Parse a form. Raises TooManyFieldsSent if it has more fields than DATA_UPLOAD_MAX_NUMBER_FIELDS."""
    limit = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
    if limit is not None and body.count(b"&") >= limit:
        raise TooManyFieldsSent(f"The form has more than {limit:,} fields.")
    try:
        body.decode()
    except UnicodeDecodeError:
        body = body.decode("iso-8859-1").encode()  # as Django reads what some programs send
    fields = QueryDict(mutable=True, encoding="utf-8")
    for field in filter(None, body.split(b"&")):
        name, _, value = field.partition(b"=")
        fields.appendlist(decode_part(name), decode_part(value))
    fields._mutable = False
    return fields


def decode_part(text: bytes) -> str:
    """Decode a name or a value, in which both + and %20 mean a space."""
    text = text.replace(b"+", b" ")
    pieces, start = [], 0
    while start < len(text):
        end = start + SLICE_BYTES
        if end < len(text) and (escape := text.rfind(b"%", end - _ESCAPE_BYTES + 1, end)) >= 0:
            end = escape
        pieces.append(unquote_to_bytes(text[start:end]))
        start = end
    return b"".join(pieces).decode("utf-8", "replace")
