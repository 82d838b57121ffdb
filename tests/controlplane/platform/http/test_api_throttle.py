from __future__ import annotations

import json
from typing import Any

from controlplane.platform.http.api_throttle import ApiThrottle, Buckets


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def answered(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def ask(throttle: ApiThrottle, token: str = "", path: str = "/api/v1/runs") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {"type": "http", "path": path, "headers": headers, "client": ("10.0.0.1", 1)}
    await throttle(scope, None, send)  # type: ignore[arg-type]  # nothing is received
    return sent


async def test_ten_thousand_requests_at_once_are_refused_but_for_the_first_and_say_when_to_go_on():
    throttle = ApiThrottle(answered, Buckets(2, now=Clock()))
    answers = [await ask(throttle, "one") for _ in range(10_000)]
    assert [answer[0]["status"] for answer in answers] == [200] * 10 + [429] * 9_990
    start, body = answers[-1]
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert set(json.loads(body["body"])["error"]) == {"what", "where", "fix"}


async def test_one_clients_haste_is_no_other_clients_wait():
    throttle = ApiThrottle(answered, Buckets(1, now=Clock()))
    for _ in range(100):
        await ask(throttle, "hasty")
    assert (await ask(throttle, "calm"))[0]["status"] == 200
    assert (await ask(throttle, path="/runs/"))[0]["status"] == 200


async def test_waiting_as_long_as_it_says_is_enough():
    clock = Clock()
    throttle = ApiThrottle(answered, Buckets(1, now=clock))
    answers = [(await ask(throttle, "one"))[0]["status"] for _ in range(6)]
    clock.now += 1
    assert answers[-1] == 429
    assert (await ask(throttle, "one"))[0]["status"] == 200


async def test_an_address_whose_tokens_are_refused_has_to_wait_whatever_token_it_sends():
    buckets = Buckets(1, now=Clock())
    throttle = ApiThrottle(answered, buckets)
    for _ in range(5):
        buckets.take("from 10.0.0.1")
    assert (await ask(throttle, "a guess"))[0]["status"] == 429


async def test_shared_runs_are_counted_by_address_whatever_token_is_sent():
    throttle = ApiThrottle(answered, Buckets(1, now=Clock()))
    answers = [await ask(throttle, f"token {n}", "/shared/guess/") for n in range(6)]
    assert [answer[0]["status"] for answer in answers] == [200] * 5 + [429]
    assert answers[-1][1]["body"] == b"Too many requests. Wait 1 s and send fewer requests at a time."


def test_many_clients_take_a_bounded_room():
    buckets = Buckets(1, limit=3, now=Clock())
    for number in range(10):
        buckets.take(str(number))
    assert len(buckets._levels) == 3
