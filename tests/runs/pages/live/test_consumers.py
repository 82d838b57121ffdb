from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import Role, User
from runs.engine import hints
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import stopping
from runs.engine.states import RunStatus
from runs.insight.live import frames, pump
from runs.insight.metrics import folding
from runs.intake.host_api import ingest
from tests.controlplane.people import signed_in
from tests.runs.builders import a_host, a_run, a_user, an_attempt, event, train
from tests.runs.conftest import Sent
from tests.runs.pages.live.sockets import opened
from tests.waiting import LIMIT_S
from workers.contract.wire.names import StopMode, Task

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sent")]


@pytest.fixture(autouse=True)
def _quick(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SOCKET_RECHECK_S = 0.05
    monkeypatch.setattr(pump, "FALLBACK_S", 0.1)
    monkeypatch.setattr(pump, "LIST_S", 0.1)


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt(RunStatus.RUNNING)


@pytest.fixture
def cookie() -> str:
    client = Client()
    client.force_login(a_user())
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def page(attempt: Attempt, after: int = 0) -> str:
    return f"/ws/runs/{attempt.run_id}/?after={after}"


store = sync_to_async(ingest.accept)


@pytest.mark.parametrize("path", ["/ws/runs/", ""])
async def test_a_page_hears_that_its_connection_lives(path: str, cookie: str, attempt: Attempt) -> None:
    async with opened(path or page(attempt), cookie=cookie) as socket:
        await socket.say('{"type": "ping"}')
        await socket.until(lambda got: {"type": "pong"} in got)


async def test_a_frame_that_is_nested_too_deeply_is_no_message(cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as socket:
        await socket.say("[" * 200_000)
        await socket.say('{"type": "ping"}')
        await socket.until(lambda got: {"type": "pong"} in got)


@pytest.mark.parametrize("path", ["/ws/", "/ws/nothing/", "/"])
async def test_an_unknown_path_is_closed_with_a_code(path: str, cookie: str) -> None:
    async with opened(path, cookie) as socket:
        assert await socket.close_code() == 4404


# --- who may ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ws/runs/", "/ws/runs/rabc/"])
async def test_an_anonymous_socket_is_closed_with_a_code_that_the_browser_sees(path: str) -> None:
    async with opened(path) as socket:
        assert socket.accepted
        assert await socket.close_code() == 4401


@pytest.mark.parametrize(
    "origin", ["", "http://evil.example", "http://localhost:9000", "http://localhost:8000.evil.example", "null"]
)
async def test_another_origin_is_refused_at_the_handshake(origin: str, cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie, origin) as socket:
        assert not socket.accepted


async def test_a_run_that_does_not_exist_has_a_code_of_its_own(cookie: str) -> None:
    async with opened("/ws/runs/rnothing/", cookie) as socket:
        assert await socket.close_code() == 4404


def signed_out() -> None:
    Session.objects.all().delete()


def disabled() -> None:
    User.objects.update(is_active=False)


def new_password() -> None:
    user = User.objects.get()
    user.set_password("quite another password")
    user.save()


def deleted() -> None:
    Run.objects.all().delete()
    User.objects.all().delete()


@pytest.mark.parametrize("happening", [signed_out, disabled, new_password, deleted])
async def test_an_open_socket_ends_with_its_session(
    happening: Callable[[], None], cookie: str, settings: Settings
) -> None:
    async with opened("/ws/runs/", cookie) as socket:
        assert await socket.silent(0.2)
        await sync_to_async(happening)()
        assert await socket.close_code() == 4401


def signs_out(cookie: str) -> None:
    Client(headers={"cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}).post("/sign-out/")


def changes_the_password(cookie: str) -> None:
    new = {"new": "quite another password", "again": "quite another password"}
    client = Client()
    client.force_login(User.objects.get())
    session = client.session
    session["signed_in_by_link_at"] = time.time()
    session.save()
    assert client.post("/password/", new).status_code == 302


def is_disabled(cookie: str) -> None:
    path = f"/users/{User.objects.get().pk}/active/"
    assert signed_in(Role.ADMIN).post(path, {"active": "0"}).status_code == 302


@pytest.mark.parametrize("act", [signs_out, changes_the_password, is_disabled])
async def test_a_socket_ends_at_once_when_its_person_does(
    act: Callable[[str], None], cookie: str, settings: Settings, redis_url: str
) -> None:
    settings.SOCKET_RECHECK_S = 600
    async with opened("/ws/runs/", cookie) as socket, opened("/ws/runs/", cookie) as other:
        assert await socket.silent(0.3)
        await sync_to_async(act)(cookie)
        assert await socket.close_code() == 4401
        assert await other.close_code() == 4401


async def test_a_hint_about_somebody_who_stays_signed_in_closes_nothing(
    cookie: str, settings: Settings, redis_url: str
) -> None:
    settings.SOCKET_RECHECK_S = 600
    async with opened("/ws/runs/", cookie) as socket:
        user = await User.objects.aget()
        for user_id in (user.pk, user.pk + 1):
            await sync_to_async(hints.person_changed)(user_id)
        assert await socket.silent(0.3)


# --- what it says ----------------------------------------------------------------------------------------------


async def test_the_first_frame_has_the_rows_the_events_and_the_run(cookie: str, attempt: Attempt) -> None:
    await store(attempt, [train(1, reward=0.5), event(2, "note", text="hello")])
    async with opened(page(attempt), cookie) as socket:
        [frame] = await socket.until(lambda got: len(got) == 1)
    assert (frame["type"], frame["last"]) == ("frame", 2)
    assert frame["rows"] == [[1, 1001.0, 1, "train", {"reward": 0.5}]]
    assert "hello" in [said["text"] for said in frame["events"]]
    assert frame["run"]["status"] == "running"


async def test_a_cursor_gets_what_is_after_it_and_no_more(cookie: str, attempt: Attempt) -> None:
    await store(attempt, [train(seq) for seq in range(1, 11)])
    async with opened(page(attempt, after=7), cookie) as socket:
        assert await socket.seqs_until(10) == [8, 9, 10]


async def test_new_rows_arrive_without_redis_too_only_later(cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as socket:
        await socket.seqs_until(0)
        await store(attempt, [train(1), train(2)])
        assert await socket.seqs_until(2) == [1, 2]


async def test_a_hint_brings_new_rows_at_once(
    cookie: str, attempt: Attempt, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "FALLBACK_S", 600.0)
    async with opened(page(attempt), cookie) as socket:
        await socket.seqs_until(0)
        async with asyncio.timeout(LIMIT_S):
            for seq in range(1, 200):
                # The writer's note of who watches is a second old at most; from then on each hint arrives.
                await store(attempt, [train(seq)])
                if not await socket.silent(0.05):
                    break
        assert (await socket.seqs_until(1))[0] == 1


async def test_a_page_that_opens_wakes_its_run_and_no_other(
    cookie: str, attempt: Attempt, redis_url: str, sent: Sent
) -> None:
    other = await sync_to_async(lambda: an_attempt(RunStatus.RUNNING, run=a_run("other", host=a_host())))()
    host = await sync_to_async(Host.objects.get)()
    await Attempt.objects.aupdate(host=host, claimed_at=timezone.now())

    async def woken(count: int) -> None:
        while len(sent.of(Task.WATCH_RUN)) < count:
            await asyncio.sleep(0.01)

    async with asyncio.timeout(LIMIT_S), opened(page(attempt), cookie):
        await woken(1)
        async with opened(page(other), cookie):
            await woken(2)
    assert sent.of(Task.WATCH_RUN) == [[attempt.run_id, 1], [other.run_id, 1]]


async def test_a_reconnect_misses_nothing_and_repeats_nothing(cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as socket:
        await store(attempt, [train(1), train(2)])
        assert await socket.seqs_until(2) == [1, 2]
    await store(attempt, [train(3), train(4)])
    async with opened(page(attempt, after=2), cookie) as socket:
        assert await socket.seqs_until(4) == [3, 4]
        await store(attempt, [train(5)])
        assert await socket.seqs_until(5) == [5]


async def test_a_burst_of_hints_becomes_few_frames(
    cookie: str, attempt: Attempt, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(page(attempt), cookie) as socket:
        await socket.seqs_until(0)
        await store(attempt, [train(seq) for seq in range(1, 301)])
        for _ in range(300):
            await sync_to_async(hints.changed)(attempt.run_id)
        got = await socket.until(lambda got: bool(got) and got[-1]["last"] == 300)
    assert sum(len(frame["rows"]) for frame in got) == 300
    assert len(got) <= 3


async def test_more_rows_than_fit_come_in_several_frames(
    cookie: str, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_ROWS", 10)
    await store(attempt, [train(seq) for seq in range(1, 36)])
    async with opened(page(attempt), cookie) as socket:
        assert await socket.seqs_until(35) == list(range(1, 36))


async def test_a_cursor_older_than_the_raw_rows_is_told_to_reload(
    cookie: str, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "KEEP_ROWS", 100)
    await store(attempt, [train(seq) for seq in range(1, 1501)])
    await sync_to_async(folding.fold_all)()
    async with opened(page(attempt, after=3), cookie) as socket:
        got = await socket.until(lambda got: got[-1:] == [{"type": "reload"}])
        assert got[0]["last"] == 1500
        await store(attempt, [train(1501)])
        assert await socket.seqs_until(1501) == [1501]


async def test_a_change_of_status_is_said_without_a_new_row(cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as socket:
        await socket.seqs_until(0)
        await sync_to_async(stopping.request_stop)(attempt, StopMode.SAVE, await sync_to_async(a_user)())
        # The reader says the run once more with its first frame, which may be before or after the stop.
        got = await socket.until(lambda got: bool(got) and got[-1].get("run", {}).get("stop_requested") == "save")
    assert "Asked to save and stop." in [said["text"] for frame in got for said in frame["events"]]


async def test_log_sizes_come_while_they_are_watched(cookie: str, attempt: Attempt) -> None:
    from runs.intake.host_api import uploads

    async with opened(page(attempt), cookie) as socket:
        [first] = await socket.until(lambda got: len(got) == 1)
        assert "logs" not in first
        await sync_to_async(uploads.log)(attempt, "trainer", 0, b"hello")
        await socket.say('{"type": "logs", "watch": true}')
        got = await socket.until(lambda got: bool(got) and "logs" in got[-1])
        assert got[-1]["logs"] == {"trainer": 5}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type":"logs"}', '"x"'])
async def test_nonsense_from_a_browser_is_ignored(text: str, cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as socket:
        await socket.say(text)
        assert await socket.seqs_until(0) == []


@pytest.mark.parametrize("after", ["x", "-5", "", "9" * 40])
async def test_a_senseless_cursor_is_no_error(after: str, cookie: str, attempt: Attempt) -> None:
    async with opened(f"/ws/runs/{attempt.run_id}/?after={after}", cookie) as socket:
        assert await socket.seqs_until(0) == []


@pytest.mark.parametrize("with_redis", [True, False])
async def test_the_list_is_told_which_runs_changed(
    with_redis: bool, cookie: str, attempt: Attempt, request: pytest.FixtureRequest
) -> None:
    if with_redis:
        request.getfixturevalue("redis_url")
    async with opened("/ws/runs/", cookie) as socket:
        async with asyncio.timeout(LIMIT_S):
            seq = 0
            while await socket.silent(0.2):
                # The list's own look compares with the one before, so that the first change may be its start.
                seq += 1
                await store(attempt, [train(seq)])
        assert await socket.receive() == {"type": "changed", "runs": [attempt.run_id]}


async def test_the_last_viewer_turns_off_the_light(cookie: str, attempt: Attempt) -> None:
    async with opened(page(attempt), cookie) as one, opened(page(attempt), cookie) as two:
        await one.seqs_until(0)
        await two.seqs_until(0)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert {f"reader {attempt.run_id}", "hints", "watch"} <= names
    await asyncio.sleep(0)
    assert not {task.get_name() for task in asyncio.all_tasks()} & {f"reader {attempt.run_id}", "hints", "watch"}
