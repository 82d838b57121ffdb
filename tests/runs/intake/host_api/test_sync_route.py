"""The short way of syncs: many at once in one transaction, and everything unusual by Django's way."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Attempt, Run
from runs.engine.records import MetricRow
from runs.engine.states import RunStatus
from runs.intake.host_api import ingest, statements
from runs.intake.host_api.group_writer import GroupWriter
from runs.intake.host_api.ingest import Delivery
from runs.intake.host_api.sync_route import MAX_BODY_BYTES, SyncRoute
from tests.runs.builders import a_run, an_attempt, train

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sent")]
DJANGO = 299
"""The status of whatever stands for Django here."""


class Web:
    """The route in front of an application that notes what it is given."""

    def __init__(self) -> None:
        self.handed_on: list[bytes] = []
        self.route = SyncRoute(self._django, GroupWriter())

    async def _django(self, scope: Any, receive: Any, send: Any) -> None:
        self.handed_on.append((await receive())["body"])
        await send({"type": "http.response.start", "status": DJANGO, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def post(self, attempt: str, body: bytes, *, token: str | None = None, **headers: str) -> tuple[int, Any]:
        known = {"authorization": f"Bearer {attempt_token(attempt) if token is None else token}"}
        sent = {**known, "content-length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
        scope = {"type": "http", "method": "POST", "path": f"/api/attempts/{attempt}/sync"}
        pairs = [(name.encode(), value.encode()) for name, value in sent.items()]
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        await self.route({**scope, "headers": pairs}, receive, send)
        return said[0]["status"], json.loads(said[1]["body"])

    async def sync(self, attempt: str, seqs: Sequence[int], **more: Any) -> tuple[int, Any]:
        return await self.post(attempt, _body(seqs, **more))


def _body(seqs: Sequence[int], **more: Any) -> bytes:
    lines = [{"seq": n, "t": 1.5, "kind": "train", "step": n, "data": {"reward": n / 4}} for n in seqs]
    return json.dumps({"lines": lines, **more}).encode()


@sync_to_async
def live(count: int = 1) -> list[Attempt]:
    made = [an_attempt(RunStatus.RUNNING, run=a_run(f"run {n}")) for n in range(count)]
    connections.close_all()
    return made


@sync_to_async
def stored() -> list[int]:
    found = list(MetricRow.objects.order_by("seq").values_list("seq", flat=True))
    connections.close_all()
    return found


async def test_a_sync_is_stored_and_answered() -> None:
    (attempt,), web = await live(), Web()
    answer = await web.sync(attempt.pk, [1, 2], seen=True)
    assert answer == (200, {"ack": 2, "stop": None, "watched": False})
    assert await web.sync(attempt.pk, [2, 3]) == (200, {"ack": 3, "stop": None, "watched": False})
    assert await web.sync(attempt.pk, []) == (200, {"ack": 3, "stop": None, "watched": False})
    assert await stored() == [1, 2, 3]
    run = await Run.objects.aget()
    assert (run.step, run.last_seq, run.last_metrics, run.trend) == (3, 3, {"reward": 0.75}, [0.25, 0.5, 0.75])


async def test_a_supervisor_that_asks_is_told_when_to_come_again(settings: Any) -> None:
    (attempt,), web = await live(), Web()
    settings.UNWATCHED_S = 2.5
    assert (await web.sync(attempt.pk, [1], paced=True))[1]["again_s"] == 2.5
    assert "again_s" not in (await web.sync(attempt.pk, [2]))[1]


async def test_what_comes_at_once_is_stored_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, web, groups = await live(8), Web(), []
    together = ingest.accept_together

    def counted(deliveries: Sequence[Delivery]) -> Any:
        groups.append(len(deliveries))
        return together(deliveries)

    monkeypatch.setattr(ingest, "accept_together", counted)
    answers = await asyncio.gather(*(web.sync(attempt.pk, [1, 2]) for attempt in attempts))
    assert [answer["ack"] for _, answer in answers] == [2] * 8
    assert len(groups) < 8
    assert sum(groups) == 8
    assert len(await stored()) == 16


async def test_the_same_lines_sent_twice_at_once_are_stored_once() -> None:
    (attempt,), web = await live(), Web()
    answers = await asyncio.gather(*(web.sync(attempt.pk, [1, 2, 3]) for _ in range(5)))
    assert [(status, answer["ack"]) for status, answer in answers] == [(200, 3)] * 5
    assert await stored() == [1, 2, 3]


async def test_one_that_must_be_refused_holds_up_no_other() -> None:
    attempts, web = await live(3), Web()
    await Attempt.objects.filter(pk=attempts[0].pk).aupdate(first_seq=None)
    await Attempt.objects.filter(pk=attempts[1].pk).aupdate(status=RunStatus.STOPPED)
    asked = [*(attempt.pk for attempt in attempts), "gone-1"]
    answers = await asyncio.gather(*(web.sync(pk, [1]) for pk in asked))
    assert [status for status, _ in answers] == [DJANGO, DJANGO, 200, DJANGO]
    assert await stored() == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        _body([0]),
        _body([1], turns_after=0),
        json.dumps({"lines": [{"seq": 1, "t": 1, "kind": "phase", "step": None, "data": {"phase": "x"}}]}).encode(),
        b" " * MAX_BODY_BYTES + _body([1]),
    ],
    ids=["not JSON", "a bad line", "a chat", "an event that may move the status", "long"],
)
async def test_what_is_not_plain_goes_to_django_as_it_came(body: bytes) -> None:
    (attempt,), web = await live(), Web()
    assert (await web.post(attempt.pk, body))[0] == DJANGO
    assert web.handed_on == [body]


async def test_a_wrong_token_and_another_coding_go_to_django() -> None:
    (attempt,), web = await live(), Web()
    assert (await web.post(attempt.pk, _body([1]), token="nonsense"))[0] == DJANGO
    assert (await web.post(attempt.pk, _body([1]), content_encoding="br"))[0] == DJANGO
    assert (await web.post(attempt.pk, gzip.compress(_body([1])), content_encoding="gzip"))[0] == 200
    assert await stored() == [1]


async def test_a_store_that_fails_leaves_every_delivery_to_django(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, web = await live(2), Web()
    monkeypatch.setattr(ingest, "_save", lambda *_, **__: 1 / 0)
    answers = await asyncio.gather(*(web.sync(attempt.pk, [1]) for attempt in attempts))
    assert [status for status, _ in answers] == [DJANGO, DJANGO]
    assert await stored() == []


@pytest.mark.parametrize("values", [statements.MAX_VALUES, 20], ids=["one statement", "several"])
def test_the_figures_of_a_run_are_those_of_lines_stored_one_by_one(
    values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MAX_VALUES", values)
    one, other = (an_attempt(RunStatus.RUNNING, run=a_run(name)) for name in ("one", "other"))
    for seq in range(1, 60):
        ingest.accept(one, [train(seq, reward=seq / 3)])
    ingest.accept_together([Delivery(other.pk, [train(seq, reward=seq / 3) for seq in range(1, 60)])])
    columns = ("step", "last_seq", "last_metrics", "trend_of", "reward_ends", "trend")
    first, second = (Run.objects.values(*columns).get(pk=each.run_id) for each in (one, other))
    assert first == second
    assert MetricRow.objects.filter(run=other.run_id).count() == 59
