"""Enforces the size limit of request bodies while they arrive.

Django's ASGI handler writes a whole body to disk before its own limits apply, for everyone. So this limit comes first:
small in general, large only for uploads by operators, with a session or an API token, and for requests with the token
of an attempt (an HMAC, checked without the database) or a host.
Async because it is ASGI; it does no other work.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import Error
from django.http import HttpRequest
from django.urls import Resolver404, resolve, reverse

from controlplane.catalogue.joining import credentials
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, User
from controlplane.platform.http import outage
from controlplane.platform.http.errors import error_page
from controlplane.platform.http.middleware import POLICY
from controlplane.platform.http.tokens import attempt_token_fits
from controlplane.platform.templatetags.figures import size_in_words
from workers.contract.wire.tokenizers import TOKENIZER_LIMIT

log = logging.getLogger(__name__)

ViewT = TypeVar("ViewT", bound=Callable[..., Any])

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

SMALL = 8 * 2**20
ENVELOPE = 2**20
"""The overhead that a form adds to its file."""
TITLES = {413: "Too large", 503: "The database is away", 507: "The disk is full"}
_MOST = "most_bytes"
_ATTEMPT = re.compile(r"/api/attempts/([^/]+)/")
_TOKENIZER = re.compile(r"/api/hosts/([^/]+)/inspections/\d+/tokenizer")
_UPLOAD = re.compile(r"/datasets/(\d+/)?upload/")
_API_UPLOAD = re.compile(r"/api/v1/datasets/(\d+/)?upload")


def reads_at_most(most: int) -> Callable[[ViewT], ViewT]:
    """A view whose document may have so many bytes, fewer than a body: the page for what is too large names them."""

    def marked(view: ViewT) -> ViewT:
        setattr(view, _MOST, most)
        return view

    return marked


class BodyLimit:
    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            limit = await _limit(scope)
        except Error as error:
            if not outage.is_away(error):
                raise
            log.exception("who uploads can't be asked of the database")
            await _refuse(scope, send, 503, "The database can't be reached; nothing was stored.")
            return
        if _declared(scope) > limit:
            await _refuse(scope, send, 413, _too_large(scope, limit))
            return
        started = False
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > limit:
                raise _TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except _TooLarge:
            if not started:
                await _refuse(scope, send, 413, _too_large(scope, limit))
        except OSError as error:
            if started or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.exception("No room for the body of a request")
            await _refuse(scope, send, 507, "The disk of the control plane is full; nothing was stored.")


class _TooLarge(Exception):
    """The body exceeds its limit."""


def _too_large(scope: Message, limit: int) -> str:
    with contextlib.suppress(Resolver404):
        limit = min(limit, getattr(resolve(scope["path"]).func, _MOST, limit))
    return f"This is larger than the {size_in_words(limit)} that can be sent here. Nothing was saved: send less."


async def _limit(scope: Message) -> int:
    path = scope["path"]
    if (attempt := _ATTEMPT.match(path)) and attempt_token_fits(attempt[1], _bearer(scope)):
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    fits = database_sync_to_async(credentials.fits)
    if (host := _TOKENIZER.fullmatch(path)) and await fits(host[1], _bearer(scope)):
        return TOKENIZER_LIMIT
    if _UPLOAD.fullmatch(path) and await database_sync_to_async(_may_upload)(scope):
        return int(settings.DATASET_MAX_BYTES) + ENVELOPE
    if _API_UPLOAD.fullmatch(path) and await database_sync_to_async(_token_may_upload)(_bearer(scope)):
        return int(settings.DATASET_MAX_BYTES) + ENVELOPE
    return SMALL


def _token_may_upload(text: str) -> bool:
    token = api_tokens.find(text)
    return token is not None and api_tokens.allows(token, ApiScope.OPERATE)


def _may_upload(scope: Message) -> bool:
    """Whether the cookie belongs to the session of an operator: a viewer, or an account that was disabled, must not
    fill the disk."""
    try:
        cookies = SimpleCookie(_header(scope, b"cookie"))
    except CookieError:
        return False
    cookie = cookies.get(settings.SESSION_COOKIE_NAME)
    if cookie is None:
        return False
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie.value)
    user = get_user(request)  # also compares the session with the current password
    return isinstance(user, User) and user.is_active and user.may_operate


def _bearer(scope: Message) -> str:
    scheme, _, token = _header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _declared(scope: Message) -> int:
    value = _header(scope, b"content-length")
    return int(value) if value.isdecimal() else 0


def _header(scope: Message, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


async def _refuse(scope: Message, send: Send, status: int, reason: str) -> None:
    page = "text/html" in _header(scope, b"accept")
    body = await sync_to_async(_page)(scope, status, reason) if page else f"{reason}\n"
    headers = [
        (b"content-type", f"text/{'html' if page else 'plain'}; charset=utf-8".encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _page(scope: Message, status: int, reason: str) -> str:
    came_from = urlsplit(_header(scope, b"referer"))
    is_ours = bool(came_from.netloc) and came_from.netloc == _header(scope, b"host")
    way: dict[str, Any] = {"ways": [(reverse("runs"), "All runs")]}
    if is_ours:
        way = {"back": came_from._replace(scheme="", netloc="").geturl()}
    return error_page(status, TITLES[status], reason, **way).content.decode()
