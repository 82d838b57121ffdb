"""The handler of HTTP requests: one thread each, kept connections, and an end for what is streamed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core import signals
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path

from controlplane import urls
from controlplane.platform.confined.limits import client_waits
from controlplane.platform.http.one_thread import OneThread


def where(request: HttpRequest) -> HttpResponse:
    connection.ensure_connection()
    return HttpResponse(f"{threading.current_thread().name} {id(connection.connection)} {request.body.decode()}")


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b"more"
        await asyncio.sleep(0)


def endless(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(_endless())


def waiting(request: HttpRequest) -> HttpResponse:
    """Answer at once if told, else when the client has gone."""
    assert client_waits.get()()
    while not request.body and client_waits.get()():
        threading.Event().wait(0.01)
    gone.set()
    return HttpResponse("done")


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("as told")


gone = threading.Event()
urlpatterns = [path("where", where), path("endless", endless), path("waiting", waiting), path("broken", broken)]
urlpatterns += urls.urlpatterns  # an error page leads there
handler500 = "controlplane.platform.http.errors.server_error"
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]
OPEN = override_settings(MIDDLEWARE=["controlplane.platform.http.middleware.ProtectiveHeaders"])


def asked(app: OneThread, path: str) -> ApplicationCommunicator:
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "http_version": "1.1"}
    return ApplicationCommunicator(app, scope)


async def answer(app: OneThread, path: str, body: bytes = b"") -> tuple[int, bytes]:
    talk = asked(app, path)
    await talk.send_input({"type": "http.request", "body": body})
    start = await talk.receive_output(5)
    content = b""
    while True:
        part: dict[str, Any] = await talk.receive_output(5)
        content += part["body"]
        if not part.get("more_body"):
            await talk.wait(5)
            return start["status"], content


@OPEN
async def test_a_thread_keeps_its_connection_from_one_request_to_the_next() -> None:
    app = OneThread(threads=2)
    told = [(await answer(app, "/where", b"hello"))[1].split() for _ in range(10)]
    assert {line[2] for line in told} == {b"hello"}
    assert len({known for _, known, _ in told}) <= 2


@OPEN
async def test_an_error_of_a_view_is_a_page_and_the_next_request_is_answered() -> None:
    app = OneThread()
    assert (await answer(app, "/broken"))[0] == 500
    assert (await answer(app, "/where"))[0] == 200


@OPEN
async def test_every_request_ends_once_for_django() -> None:
    ended: list[object] = []
    signals.request_finished.connect(lambda sender, **_: ended.append(sender), weak=False, dispatch_uid="once")
    try:
        await answer(OneThread(), "/where")
    finally:
        signals.request_finished.disconnect(dispatch_uid="once")
    assert ended == [OneThread]


@OPEN
async def test_a_stream_ends_when_whoever_asked_has_gone() -> None:
    talk = asked(OneThread(), "/endless")
    await talk.send_input({"type": "http.request", "body": b""})
    assert (await talk.receive_output(5))["status"] == 200
    assert (await talk.receive_output(5))["body"] == b"more"
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(5)


async def test_a_body_that_never_comes_whole_is_not_answered() -> None:
    talk = asked(OneThread(), "/where")
    await talk.send_input({"type": "http.request", "body": b"half", "more_body": True})
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(5)
    assert await talk.receive_nothing()


@OPEN
async def test_work_ends_when_its_client_has_gone() -> None:
    gone.clear()
    talk = asked(OneThread(), "/waiting")
    await talk.send_input({"type": "http.request", "body": b""})
    assert await talk.receive_nothing(0.2)
    assert not gone.is_set()
    await talk.send_input({"type": "http.disconnect"})
    assert await asyncio.to_thread(gone.wait, 60)
    await talk.wait(5)


@OPEN
async def test_a_client_that_waits_is_answered_after_it_was_listened_for() -> None:
    assert await answer(OneThread(), "/waiting", b"at once") == (200, b"done")
