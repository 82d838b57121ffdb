"""Size limits of request bodies, enforced while the bodies arrive.

Django's ASGI handler writes a whole body to disk before its own limits apply. This limit therefore comes first: small
in general, larger for the requests in `controlplane.setup.serving.body_sizes`. The module is async because it is ASGI
middleware; it does no other work.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.db import Error
from django.urls import Resolver404, resolve, reverse

from controlplane.platform.datafolder import FULL_DISK_ERRORS
from controlplane.platform.http import outage
from controlplane.platform.http.errors import error_json, error_page
from controlplane.platform.http.middleware import POLICY
from controlplane.platform.templatetags.figures import size_in_words

log = logging.getLogger(__name__)

ViewT = TypeVar("ViewT", bound=Callable[..., Any])

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Limit = Callable[[Message], Awaitable[int]]

DEFAULT_LIMIT = 2 * 2**20
"""Limit for most requests, since parsing more at once would delay the requests of others."""
TITLES = {403: "Not allowed", 413: "Too large", 503: "The database is unavailable", 507: "The disk is full"}
_LIMIT_ATTRIBUTE = "most_bytes"


def reads_at_most(limit: int) -> Callable[[ViewT], ViewT]:
    """Mark a view with its own, lower limit in bytes, which the error page of overlong requests then shows."""

    def marked(view: ViewT) -> ViewT:
        setattr(view, _LIMIT_ATTRIBUTE, limit)
        return view

    return marked


class LargeBodyRefused(Exception):
    """Refusal of a large body whose sender may not send it; the message says why."""


class BodyLimit:
    """ASGI middleware that enforces the limit. `limit_of` returns the maximum size of a request's body in bytes, and
    may raise LargeBodyRefused."""

    def __init__(self, app: App, limit_of: Limit) -> None:
        self.app, self.limit_of = app, limit_of

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            limit = await self.limit_of(scope)
        except LargeBodyRefused as error:
            await _refuse(scope, send, 403, str(error))
            return
        except Error as error:
            if not outage.is_away(error):
                raise
            log.exception("the database can't be queried for the user of an upload")
            await _refuse(scope, send, 503, "The database can't be reached, so nothing was stored.")
            return
        declared_length = header(scope, b"content-length")
        if declared_length.isdecimal() and int(declared_length) > limit:
            await _refuse(scope, send, 413, _too_large(scope, limit))
            return
        await self._call_with_limit(scope, receive, send, limit)

    async def _call_with_limit(self, scope: Message, receive: Receive, send: Send, limit: int) -> None:
        has_started = False
        received_bytes = 0

        async def receive_counted() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > limit:
                raise _TooLarge
            return message

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self.app(scope, receive_counted, send_noted)
        except _TooLarge:
            if not has_started:
                await _refuse(scope, send, 413, _too_large(scope, limit))
        except OSError as error:
            if has_started or error.errno not in FULL_DISK_ERRORS:
                raise
            log.exception("No room for the body of a request")
            await _refuse(scope, send, 507, "The disk of the control plane is full, so nothing was stored.")


class _TooLarge(Exception):
    """Signal that a body exceeds its limit."""


def _too_large(scope: Message, limit: int) -> str:
    with contextlib.suppress(Resolver404):
        limit = min(limit, getattr(resolve(scope["path"]).func, _LIMIT_ATTRIBUTE, limit))
    return f"This is larger than the limit of {size_in_words(limit)}. Nothing was saved. Send less."


def header(scope: Message, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope.get("headers", ()) if key == name), "")


async def _refuse(scope: Message, send: Send, status: int, reason: str) -> None:
    kind, body = "text/plain", f"{reason}\n"
    if scope["path"].startswith("/api/"):
        kind, body = "application/json", error_json(status, reason, where="body").content.decode()
    elif "text/html" in header(scope, b"accept"):
        kind, body = "text/html", await sync_to_async(_page)(scope, status, reason)
    headers = [
        (b"content-type", f"{kind}; charset=utf-8".encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _page(scope: Message, status: int, reason: str) -> str:
    referrer = urlsplit(header(scope, b"referer"))
    context: dict[str, Any] = {"links": [(reverse("runs"), "All runs")]}
    if referrer.netloc and referrer.netloc == header(scope, b"host"):
        context = {"back": referrer._replace(scheme="", netloc="").geturl()}
    return error_page(status, TITLES[status], reason, **context).content.decode()
