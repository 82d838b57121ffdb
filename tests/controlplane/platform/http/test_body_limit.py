"""A request body stops at its limit while it arrives, before anything is written for it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.test import Client

from controlplane.platform.accounts.models import ApiScope, Role, User
from controlplane.platform.http import body_limit
from controlplane.platform.http.body_limit import BodyLimit
from controlplane.platform.http.tokens import attempt_token
from controlplane.setup.serving import body_sizes
from tests.controlplane.people import make_user, operator, signed_in, viewer
from tests.host_tokens import host_token
from tests.runs.api.clients import Program

PIECE = 2**16


class Server:
    """Stands for the web server: sends a body piece by piece, and notes what the application made of it."""

    def __init__(self, path: str, size: int, *, cookie: str = "", token: str = "", declared: int | None = None) -> None:
        headers = [(b"cookie", cookie.encode())]
        if token:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        if declared is not None:
            headers.append((b"content-length", str(declared).encode()))
        self.scope = {"type": "http", "path": path, "headers": headers}
        self.pieces: Iterator[int] = iter([PIECE] * (size // PIECE) + [size % PIECE])
        self.sent: list[Any] = []
        self.read = 0

    async def receive(self) -> dict[str, Any]:
        piece = next(self.pieces, None)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"x" * piece, "more_body": True}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def ask(self, failure: Exception | None = None) -> int:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (message := await receive())["type"] == "http.request":
                self.read += len(message["body"])
                if failure:
                    raise failure
            await send({"type": "http.response.start", "status": 200, "headers": []})

        await BodyLimit(app, body_sizes.body_limit)(self.scope, self.receive, self.send)
        return int(self.sent[0]["status"])


async def test_a_body_without_a_declared_length_is_stopped_where_it_goes_over():
    server = Server("/sign-in/", 20 * body_limit.DEFAULT_LIMIT)
    assert await server.ask() == 413
    assert server.read <= body_limit.DEFAULT_LIMIT


async def test_a_declared_length_over_the_limit_is_refused_unread():
    server = Server("/sign-in/", 10, declared=body_limit.DEFAULT_LIMIT + 1)
    assert await server.ask() == 413
    assert server.read == 0


async def test_a_browser_is_shown_a_page_that_leads_back():
    server = Server("/rewards/import/", 10, declared=body_limit.DEFAULT_LIMIT + 1)
    server.scope["headers"] += [
        (b"accept", b"text/html,*/*"),
        (b"host", b"box:8000"),
        (b"referer", b"http://box:8000/datasets/upload/?a=1"),
    ]
    assert await server.ask() == 413
    page = server.sent[1]["body"].decode()
    assert "This is larger than the limit of 512\N{NO-BREAK SPACE}KiB." in page
    assert 'href="/datasets/upload/?a=1" data-back>Go back' in page
    server.scope["headers"][-1] = (b"referer", b"http://elsewhere/")
    server.sent.clear()
    assert await server.ask() == 413
    assert "Go back" not in server.sent[1]["body"].decode()


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/sign-in/", "2 MiB"),
        ("/nowhere", "2 MiB"),
        ("/rewards/import/", "512 KiB"),
        ("/environments/import/", "512 KiB"),
        ("/hardware/profiles/import/", "1 MiB"),
        ("/runs/new/import", "1 MiB"),
    ],
)
async def test_the_limit_that_is_named_is_the_forms_own(path: str, most: str):
    server = Server(path, 10, declared=body_limit.DEFAULT_LIMIT + 1)
    assert await server.ask() == 413
    assert f"the limit of {most}" in server.sent[1]["body"].decode().replace("\N{NO-BREAK SPACE}", " ")


async def test_a_length_that_lies_does_not_help():
    assert await Server("/sign-in/", 2 * body_limit.DEFAULT_LIMIT, declared=5).ask() == 413


async def test_ordinary_bodies_pass():
    assert await Server("/sign-in/", 1000, declared=1000).ask() == 200


@pytest.mark.django_db(transaction=True)
async def test_large_uploads_are_for_the_signed_in_alone(settings):
    settings.DATASET_MAX_BYTES = 4 * body_limit.DEFAULT_LIMIT
    client = await sync_to_async(operator)()
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    size = 2 * body_limit.DEFAULT_LIMIT
    for path in ("/datasets/upload/", "/datasets/7/upload/"):
        assert await Server(path, size, cookie=cookie).ask() == 200
        assert await Server(path, size).ask() == 413
        assert await Server(path, size, cookie=f"{settings.SESSION_COOKIE_NAME}=madeup").ask() == 413
        assert await Server(path, 3 * size, cookie=cookie).ask() == 413
    assert await Server("/datasets/", size, cookie=cookie).ask() == 413


@pytest.mark.django_db(transaction=True)
async def test_only_operators_type_long_rows(settings):
    cookies = {
        who: (await sync_to_async(who)()).cookies[settings.SESSION_COOKIE_NAME].value for who in (operator, viewer)
    }
    for who, status, beyond in ((operator, 200, 413), (viewer, 403, 403)):
        cookie = f"{settings.SESSION_COOKIE_NAME}={cookies[who]}"
        assert await Server("/datasets/rows/", body_sizes.TEXT_LIMIT, cookie=cookie).ask() == status
        assert await Server("/datasets/rows/", body_sizes.TEXT_LIMIT + 1, cookie=cookie).ask() == beyond
    assert await Server("/datasets/rows/", body_sizes.TEXT_LIMIT).ask() == 413


def disabled() -> Client:
    user = make_user(Role.OPERATOR)
    client = signed_in(user=user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    return client


def with_an_old_password() -> Client:
    user = make_user(Role.OPERATOR)
    client = signed_in(user=user)
    user.set_password("quite another password")
    user.save()
    return client


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("who", "status"), [(viewer, 403), (disabled, 413), (with_an_old_password, 413)])
async def test_who_may_not_upload_fills_no_disk(who: Callable[[], Client], status: int, settings):
    client = await sync_to_async(who)()
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    server = Server("/datasets/upload/", 2 * body_limit.DEFAULT_LIMIT, cookie=cookie)
    assert await server.ask() == status
    assert server.read <= body_limit.DEFAULT_LIMIT


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("scope", "status"), [(ApiScope.OPERATE, 200), (ApiScope.READ, 403)])
async def test_large_uploads_by_token_need_one_that_may_operate(scope: str, status: int) -> None:
    program = await sync_to_async(Program)(scope)
    for path in ("/api/v1/datasets/upload", "/api/v1/datasets/7/upload"):
        assert await Server(path, 2 * body_limit.DEFAULT_LIMIT, token=program.text).ask() == status


async def test_large_reports_are_for_the_attempt_itself():
    size = 2 * body_limit.DEFAULT_LIMIT
    mine = attempt_token("a1")
    assert await Server("/api/attempts/a1/samples", size, token=mine).ask() == 200
    assert await Server("/api/attempts/a1/samples", 17 * body_sizes.TEXT_LIMIT, token=mine).ask() == 413
    for path, token in (("a1/samples", ""), ("a1/samples", "madeup"), ("a1/samples", "\xe4"), ("a2/samples", mine)):
        assert await Server(f"/api/attempts/{path}", size, token=token).ask() == 413
    assert await Server("/api/hosts/announce", size, token=mine).ask() == 413


@pytest.mark.django_db(transaction=True)
async def test_a_tokenizer_comes_from_the_host_itself():
    size, path = 2 * body_limit.DEFAULT_LIMIT, "/api/hosts/box/inspections/7/tokenizer"
    mine, others = [await database_sync_to_async(host_token)(name) for name in ("box", "other")]
    assert await Server(path, size, token=mine).ask() == 200
    assert await Server(path, 17 * body_sizes.TEXT_LIMIT, token=mine).ask() == 413
    for token in ("", "madeup", others):
        assert await Server(path, size, token=token).ask() == 413


async def test_a_full_disk_is_said(caplog):
    server = Server("/sign-in/", 1000)
    assert await server.ask(OSError(errno.ENOSPC, "full")) == 507
    assert "No room" in caplog.text


@pytest.mark.parametrize("accept", [b"text/html", b"*/*"])
@pytest.mark.parametrize("path", ["/api/v1/preflight", "/api/attempts/a/sync", "/api/v1/nowhere"])
async def test_a_program_is_answered_in_the_apis_own_format(path: str, accept: bytes) -> None:
    server = Server(path, 10, declared=body_limit.DEFAULT_LIMIT + 1)
    server.scope["headers"].append((b"accept", accept))
    assert await server.ask() == 413
    assert dict(server.sent[0]["headers"])[b"content-type"].startswith(b"application/json")
    error = json.loads(server.sent[1]["body"])["error"]
    assert error["what"].replace("\N{NO-BREAK SPACE}", " ").startswith("This is larger than the limit of 2 MiB.")
    assert set(error) == {"what", "where", "fix"}
