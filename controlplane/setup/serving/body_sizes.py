"""Size limits of request bodies.

Limits are large only for uploads by operators, with a session or an API token, and for requests with the token of an
attempt (an HMAC, checked without the database) or of a host.
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
from controlplane.platform.http.body_limit import DEFAULT_LIMIT, Message, header
from controlplane.platform.http.tokens import attempt_token_fits
from workers.contract.wire.tokenizers import TOKENIZER_LIMIT

FORM_OVERHEAD_BYTES = 2**20
_ATTEMPT = re.compile(r"/api/attempts/([^/]+)/")
_TOKENIZER = re.compile(r"/api/hosts/([^/]+)/inspections/\d+/tokenizer")
_UPLOAD = re.compile(r"/datasets/(\d+/)?upload/")
_API_UPLOAD = re.compile(r"/api/v1/datasets/(\d+/)?upload")


async def body_limit(scope: Message) -> int:
    """Return the maximum size of a request's body in bytes."""
    path = scope["path"]
    if (attempt := _ATTEMPT.match(path)) and attempt_token_fits(attempt[1], _bearer(scope)):
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    is_valid = database_sync_to_async(credentials.is_valid)
    if (host := _TOKENIZER.fullmatch(path)) and await is_valid(host[1], _bearer(scope)):
        return TOKENIZER_LIMIT
    if _UPLOAD.fullmatch(path) and await database_sync_to_async(_may_upload)(scope):
        return int(settings.DATASET_MAX_BYTES) + FORM_OVERHEAD_BYTES
    if _API_UPLOAD.fullmatch(path) and await database_sync_to_async(_token_may_upload)(_bearer(scope)):
        return int(settings.DATASET_MAX_BYTES) + FORM_OVERHEAD_BYTES
    return DEFAULT_LIMIT


def _token_may_upload(plaintext: str) -> bool:
    token = api_tokens.find(plaintext)
    return token is not None and api_tokens.allows(token, ApiScope.OPERATE)


def _may_upload(scope: Message) -> bool:
    """Return whether the cookie is of an active operator's session. Others must not be able to fill the disk."""
    try:
        cookie = SimpleCookie(header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return False
    if cookie is None:
        return False
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie.value)
    user = get_user(request)  # also compares the session with the current password
    return isinstance(user, User) and user.is_active and user.may_operate


def _bearer(scope: Message) -> str:
    scheme, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
