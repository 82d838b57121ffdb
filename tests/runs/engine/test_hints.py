from __future__ import annotations

import time

import pytest
import redis
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from controlplane.catalogue.hardware import host_commands
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.engine import hints as runs_hints
from runs.engine.states import RunStatus
from runs.insight.health import tick as health
from runs.intake.host_api import ingest
from tests.runs.builders import an_attempt, train
from workers.contract.wire.names import Task


@pytest.fixture
def hints(redis_url: str) -> redis.client.PubSub:
    subscription = redis.Redis.from_url(redis_url).pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(runs_hints.CHANNEL)
    subscription.get_message(timeout=5)
    return subscription


def watch(url: str, name: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(runs_hints.watch_key(name), 1, ex=5)
    runs_hints.forget()


@pytest.mark.parametrize(("watched", "heard"), [("r1", True), ("*", True), ("r2", False)])
def test_only_what_somebody_watches_is_announced(
    watched: str, heard: bool, redis_url: str, hints: redis.client.PubSub
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    watch(redis_url, watched)
    runs_hints.announce(("r1", 7))
    runs_hints.changed("end")
    got = hints.get_message(timeout=5)
    hints.close()
    assert got is not None
    assert got["data"] == (b"r1 7" if heard else b"end 0")


def test_who_watches_is_asked_once_a_second_not_once_a_batch(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(redis_url, "r1")
    assert runs_hints.watched(["r1"])
    monkeypatch.setattr(runs_hints._redis, "_get", lambda: pytest.fail("asked again"))
    assert runs_hints.watched(["r1"])


@pytest.mark.django_db
def test_a_batch_is_stored_though_redis_is_gone(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    runs_hints.forget()
    attempt = an_attempt(RunStatus.RUNNING)
    assert ingest.accept(attempt, [train(1)]) == 1
    runs_hints.announce((attempt.run_id, 1))
    assert not runs_hints.watched([attempt.run_id])
    runs_hints.forget()


def test_a_redis_that_failed_is_left_alone_for_a_while(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    runs_hints.forget()
    runs_hints.changed("r1")
    monkeypatch.setattr(runs_hints._redis, "_get", lambda: pytest.fail("tried again at once"))
    runs_hints.changed("r1")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + runs_hints.BROKEN_PAUSE_S + 1)
    with pytest.raises(pytest.fail.Exception):
        runs_hints.changed("r1")
    runs_hints.forget()


@pytest.mark.parametrize("url", ["", "unix:///nowhere/valkey.sock"])
def test_a_send_without_a_broker_says_so_at_once(url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.celery import app

    settings.REDIS_URL = url
    monkeypatch.setattr(app.conf, "broker_write_url", "redis+socket:///nowhere/valkey.sock")
    with pytest.raises(host_commands.BrokerDown):
        host_commands.send("box", Task.STOP_RUN, ["r1", 1, "now"])


def test_only_the_sockets_the_two_streams_and_the_route_of_syncs_are_async() -> None:
    found = {path.name for path in ROOT.glob("runs/**/*.py") if "async def" in path.read_text()}
    assert found == {"consumers.py", "log_views.py", "pump.py", "sync_route.py"}


@pytest.mark.django_db
def test_a_sync_takes_few_queries(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    from tests.runs.intake.host_api.test_api import line, post

    attempt = an_attempt(RunStatus.RUNNING)
    with django_assert_num_queries(8):
        post(attempt, "sync", {"lines": [line(1), line(2)]})


@pytest.mark.django_db(transaction=True)
def test_a_verdict_that_changed_is_said_to_everybody_and_one_that_stayed_is_not(
    redis_url: str, hints: redis.client.PubSub
) -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    ingest.accept(attempt, [train(seq) for seq in range(1, 41)])
    while hints.get_message(timeout=0.2):
        pass
    now = timezone.now()
    assert [health.tick(now), health.tick(now + health.ASSESSMENT_INTERVAL)] == [1, 1]
    got, more = hints.get_message(timeout=5), hints.get_message(timeout=0.2)
    hints.close()
    assert got is not None
    assert got["data"] == f"{attempt.run_id} 0".encode()
    assert more is None
