"""Enforces the size limit of request bodies while they arrive.

Django's ASGI handler writes a whole body to disk before its own limits apply. So this limit comes first: small in
general, larger for the requests in `controlplane.setup.serving.body_sizes`. Async because it is ASGI; it does no other
work.
"""

import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.db import Error
from django.urls import Resolver404, resolve, reverse

from controlplane.platform.http import outage
from controlplane.platform.http.errors import error_page
from controlplane.platform.http.middleware import POLICY
from controlplane.platform.templatetags.figures import size_in_words

log = logging.getLogger(__name__)

ViewT = TypeVar("ViewT", bound=Callable[..., Any])

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Limit = Callable[[Message], Awaitable[int]]

SMALL = 8 * 2**20
TITLES = {413: "Too large", 503: "The database is away", 507: "The disk is full"}
_MOST = "most_bytes"


def reads_at_most(limit: int) -> Callable[[ViewT], ViewT]:
    """Mark a view with its own limit in bytes, below that of bodies, for the page about too large requests."""

    def marked(view: ViewT) -> ViewT:
        setattr(view, _MOST, limit)
        return view

    return marked


class BodyLimit:
    """ASGI middleware that enforces the limit. `limit_of`: the most bytes of a request's body."""

    def __init__(self, app: App, limit_of: Limit) -> None:
        self.app, self.limit_of = app, limit_of

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            limit = await self.limit_of(scope)
        except Error as error:
            if not outage.is_away(error):
                raise
            log.exception("the database can't be asked about an upload's user")
            await _refuse(scope, send, 503, "The database can't be reached; nothing was stored.")
            return
        declared = header(scope, b"content-length")
        if declared.isdecimal() and int(declared) > limit:
            await _refuse(scope, send, 413, _too_large(scope, limit))
            return
        await self._counting(scope, receive, send, limit)

    async def _counting(self, scope: Message, receive: Receive, send: Send, limit: int) -> None:
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
    """A body that exceeds its limit."""


def _too_large(scope: Message, limit: int) -> str:
    with contextlib.suppress(Resolver404):
        limit = min(limit, getattr(resolve(scope["path"]).func, _MOST, limit))
    return f"This is larger than the {size_in_words(limit)} that can be sent here. Nothing was saved: send less."


def header(scope: Message, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


async def _refuse(scope: Message, send: Send, status: int, reason: str) -> None:
    page = "text/html" in header(scope, b"accept")
    body = await sync_to_async(_page)(scope, status, reason) if page else f"{reason}\n"
    headers = [
        (b"content-type", f"text/{'html' if page else 'plain'}; charset=utf-8".encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _page(scope: Message, status: int, reason: str) -> str:
    came_from = urlsplit(header(scope, b"referer"))
    context: dict[str, Any] = {"links": [(reverse("runs"), "All runs")]}
    if came_from.netloc and came_from.netloc == header(scope, b"host"):
        context = {"back": came_from._replace(scheme="", netloc="").geturl()}
    return error_page(status, TITLES[status], reason, **context).content.decode()
