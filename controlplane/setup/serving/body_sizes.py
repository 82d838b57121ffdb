"""Size limits of request bodies.

Limits are large only for uploads and typed rows of operators, with a session or an API token, and for requests with the
token of an attempt (an HMAC, checked without the database) or of a host.
"""

import re
from http.cookies import CookieError, SimpleCookie
from importlib import import_module

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from controlplane.catalogue.joining import credentials
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, User
from controlplane.platform.http.body_limit import DEFAULT_LIMIT, LargeBodyRefused, Message, header
from controlplane.platform.http.request_body import FORM_OVERHEAD_BYTES, TEXT_LIMIT
from controlplane.platform.http.tokens import attempt_token_fits
from workers.contract.wire.tokenizers import TOKENIZER_LIMIT

_ATTEMPT = re.compile(r"/api/attempts/([^/]+)/")
_TOKENIZER = re.compile(r"/api/hosts/([^/]+)/inspections/\d+/tokenizer")
_UPLOAD = re.compile(r"/datasets/(\d+/)?upload/")
_API_UPLOAD = re.compile(r"/api/v1/datasets/(\d+/)?upload")
_TEXTS = re.compile(r"/(datasets/.+|rewards/try/)")
_API_TEXTS = re.compile(r"/api/v1/((datasets|corpora)/.+|rewards/try)")


async def body_limit(scope: Message) -> int:
    """Return the maximum size of a request's body in bytes. Raises LargeBodyRefused if the user or token of an upload
    may only read."""
    path = scope["path"]
    if (attempt := _ATTEMPT.match(path)) and attempt_token_fits(attempt[1], _bearer(scope)):
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    is_valid = database_sync_to_async(credentials.is_valid)
    if (host := _TOKENIZER.fullmatch(path)) and await is_valid(host[1], _bearer(scope)):
        return TOKENIZER_LIMIT
    if _is_short(scope):
        return DEFAULT_LIMIT  # saves a query; the view refuses whom it must
    if _UPLOAD.fullmatch(path) and await database_sync_to_async(_may_upload)(scope):
        return int(settings.DATASET_MAX_BYTES) + FORM_OVERHEAD_BYTES
    if _API_UPLOAD.fullmatch(path) and await database_sync_to_async(_token_may_upload)(_bearer(scope)):
        return int(settings.DATASET_MAX_BYTES) + FORM_OVERHEAD_BYTES
    if _TEXTS.fullmatch(path) and await database_sync_to_async(_may_upload)(scope):
        return TEXT_LIMIT
    if _API_TEXTS.fullmatch(path) and await database_sync_to_async(_token_may_upload)(_bearer(scope)):
        return TEXT_LIMIT
    return DEFAULT_LIMIT


def _is_short(scope: Message) -> bool:
    length = header(scope, b"content-length")
    return scope.get("method") in ("GET", "HEAD") or (length.isdecimal() and int(length[:20]) <= DEFAULT_LIMIT)


def _token_may_upload(plaintext: str) -> bool:
    """Return True if the token may upload, or False if it is unknown. Raises LargeBodyRefused if it may only read."""
    token = api_tokens.find(plaintext)
    if token is not None and not api_tokens.allows(token, ApiScope.OPERATE):
        raise LargeBodyRefused("This token may only read, so nothing was stored. Use one that may operate.")
    return token is not None


def _may_upload(scope: Message) -> bool:
    """Return whether the cookie belongs to an active operator's session. Others must not be able to fill the disk.

    Raises LargeBodyRefused for other active users.
    """
    try:
        cookie = SimpleCookie(header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return False
    if cookie is None:
        return False
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie.value)
    user = get_user(request)  # also compares the session with the current password
    if not (isinstance(user, User) and user.is_active):
        return False
    if not user.may_operate:
        raise LargeBodyRefused("This requires the operator role, so nothing was stored. Ask an admin for it.")
    return True


def _bearer(scope: Message) -> str:
    scheme, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
