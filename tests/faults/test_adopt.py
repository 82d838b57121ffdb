"""Parts of the control plane away for longer than every deadline while runs train, verify and wait: nobody is reaped
for the control plane's own silence, and all of it is caught up with when the part is back."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from websockets.sync.client import ClientConnection, connect

from runs.engine import hints as runs_hints
from tests.faults import invariants
from tests.faults.harness import CPU, ARun, Product, on_gpus

pytestmark = pytest.mark.processes

OUTAGE_S = 4.0
"""Longer than every deadline of harness.SCALED after which somebody counts as silent, stale or lost."""
EVERYTHING = ["web", "control", "host", "valkey"]
MOVES = """
from runs.engine.records import RunEvent
result = [e.data["to"] for e in RunEvent.objects.filter(run_id=run, kind="status").order_by("id")]
"""


@contextlib.contextmanager
def away(product: Product, *names: str) -> Iterator[None]:
    """Programs of the installation killed outright, and not there for as long as the block lasts."""
    programs = {name: product.fleet.programs()[name] for name in names}
    for name in names:
        product.kill(name)
    product.fleet.stop(names)
    try:
        yield
    finally:
        # Redis last, unlike `up`: the others must find it by themselves.
        for name in names:
            product.fleet.start(programs[name])


def outlast(run: ARun) -> None:
    """Until a run has trained for longer than every deadline."""
    began = run.outbox()[-1]["t"]
    run.product.until(lambda: run.outbox()[-1]["t"] - began > OUTAGE_S, "the run does not train on")


def caught_up(run: ARun) -> None:
    """What the outbox holds by now is stored."""
    last = run.outbox()[-1]["seq"]
    run.until(lambda seen: seen["last_seq"] >= last)


def training(product: Product) -> ARun:
    run = product.launch(on_gpus(1), trainer="forever")
    run.until_step(3)
    return run


def verifying(product: Product) -> ARun:
    """A stopped run whose GPU somebody else still uses."""
    run = training(product)
    product.gpus.others(gpu_of(run), 5000)
    run.stop("now")
    run.until(lambda seen: seen["phase"] == "verifying")
    return run


def gpu_of(run: ARun) -> int:
    return int(run.look()["placement"]["gpus"][0])


def end(run: ARun) -> None:
    run.stop("save")
    invariants.check(run, status="stopped", reason="stopped_by_user")


@pytest.mark.parametrize(
    "names", [("web",), ("control",), ("valkey",), EVERYTHING], ids=["web", "beat", "redis", "all"]
)
def test_what_was_away_for_long_is_caught_up_with(product: Product, names: list[str]) -> None:
    trains, verifies = training(product), verifying(product)
    waits = product.launch(on_gpus(7), trainer="forever")
    waits.until(lambda seen: "GPU" in seen["waits_for"])
    with away(product, *names):
        outlast(trains)
        product.gpus.others(gpu_of(verifies), 0)
        # It stays until it could say so.
        product.until(lambda: verifies.outbox()[-1]["kind"] == "ended", "the GPU is free, and not proved so")
    invariants.check(verifies, status="stopped", reason="stopped_by_user")
    caught_up(trains)
    waits.until_step(3)
    assert product.stack.django(MOVES, run=trains.run) == ["starting", "running"]
    assert product.stack.django(MOVES, run=waits.run) == ["starting", "running"]
    end(trains)
    end(waits)


@pytest.mark.telling
def test_without_redis_stops_arrive_by_poll_and_afterwards_hints_flow_again(product: Product) -> None:
    run, stopped = training(product), training(product)
    with viewer(product, run) as frames:
        hints = redis.Redis.from_url(product.stack.installation.redis_url)
        with away(product, "valkey"):
            stopped.stop("save")
            invariants.check(stopped, status="stopped", reason="stopped_by_user")
            outlast(run)
            # The viewer is served without hints too, by looking.
            last = run.outbox()[-1]["seq"]
            product.until(lambda: frames.last >= last, "the page stands still without Redis")
            store = product.stack.installation.data / "valkey"
            shutil.rmtree(store)  # it comes back empty
            store.mkdir(mode=0o700)
        with hints.pubsub(ignore_subscribe_messages=True) as heard:
            product.until(lambda: answers(hints), "Redis does not come back")
            heard.subscribe(runs_hints.CHANNEL)
            # Ours and the web's: its subscription is back, its note of the viewer too, and writers publish again.
            product.until(
                lambda: dict(hints.pubsub_numsub(runs_hints.CHANNEL))[runs_hints.CHANNEL.encode()] == 2,
                "no subscription",
            )
            product.until(lambda: hints.exists(runs_hints.watch_key(run.run)), "no note of the viewer")
            product.until(lambda: hint_of(heard).startswith(f"{run.run} "), "no hint of the run")
        hints.close()
    # Empty queues and no message lost: a launch arrives as before.
    later = product.launch(CPU, trainer="steps:3")
    invariants.check(later, status="succeeded", reason="completed")
    end(run)


def test_launches_wait_for_a_host_worker_that_is_away_and_runs_there_go_on(product: Product) -> None:
    run = training(product)
    with away(product, "host"):
        early = product.launch(CPU, trainer="steps:3", just_heard=True)  # the message is on its way
        early.until(lambda seen: seen["launches_sent"] == 1)
        outlast(run)
        late = product.launch(CPU, trainer="steps:3")
        late.until(lambda seen: "launches can't reach it" in seen["waits_for"])
        with product.stack.client("viewer") as client:
            assert "launches can&#x27;t reach it" in client.get(f"/runs/{late.run}/").text
            assert "No new runs can be launched on it; its current runs continue." in client.get("/hardware/").text
            assert "Unreachable since" not in client.get(f"/runs/{run.run}/").text
        assert early.look()["status"] == "starting"
        caught_up(run)
    for launched in (early, late):
        invariants.check(launched, status="succeeded", reason="completed")
    end(run)


class Frames:
    """What a run page hears."""

    last = 0

    def take(self, socket: ClientConnection) -> None:
        for message in socket:
            self.last = max(self.last, json.loads(message).get("last", 0))


@contextlib.contextmanager
def viewer(product: Product, run: ARun) -> Iterator[Frames]:
    """The run's page, open."""
    url = product.stack.url
    cookies = "; ".join(f"{name}={value}" for name, value in product.stack.cookies().items())
    address = f"{url.replace('http', 'ws')}/ws/runs/{run.run}/?after=0"
    frames = Frames()
    with connect(address, origin=url, additional_headers={"Cookie": cookies}) as socket:  # type: ignore[arg-type]
        reader = threading.Thread(target=frames.take, args=[socket])
        reader.start()
        yield frames
    reader.join()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def hint_of(heard: Any) -> str:
    message = heard.get_message(timeout=1)
    return message["data"].decode() if message else ""
