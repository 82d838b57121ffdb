"""One reader and its viewers: who is given what from memory, and who asks the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from channels.db import database_sync_to_async

from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.insight.live import frames, pump
from runs.intake.host_api import ingest
from tests.runs.builders import an_attempt, train

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sent")]

store = database_sync_to_async(ingest.accept)  # its thread keeps no connection


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "FRAME_S", 0.0)


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt(RunStatus.RUNNING)


@dataclass
class Pumped:
    """A reader that ticks when it is told to, and viewers of it whose browsers take all at once."""

    attempt: Attempt
    reader: pump.Reader = field(init=False)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = pump.Reader(self.attempt.run_id, frames.StreamCursor(0, 0))

    def viewer(self, seq: int = 0) -> asyncio.Queue[str]:
        """What a page gets that has the lines up to `seq`."""
        got: asyncio.Queue[str] = asyncio.Queue()
        viewer = pump.Viewer(self.attempt.run_id, frames.StreamCursor(seq, 0), got.put)
        self.tasks.append(asyncio.create_task(viewer.run(self.reader)))
        return got

    async def tick(self) -> None:
        self.reader.hint.set()
        await self.reader.tick()


@pytest.fixture
async def pumped(attempt: Attempt) -> AsyncIterator[Pumped]:
    pumped = Pumped(attempt)
    async with asyncio.timeout(20):
        yield pumped
    for task in pumped.tasks:
        task.cancel()
    await asyncio.gather(*pumped.tasks, *pumped.reader._reads.values(), return_exceptions=True)


def seqs(said: list[str]) -> list[int]:
    return [row[0] for text in said for row in json.loads(text)["rows"]]


async def test_completions_are_said_to_who_has_just_come(attempt: Attempt, pumped: Pumped) -> None:
    from runs.intake.host_api import uploads

    await store(attempt, [train(1)])
    got = pumped.viewer()
    assert '"samples"' not in await got.get()
    await database_sync_to_async(uploads.samples)(attempt, 1, [{"step": 1, "prompt": "?", "completions": []}])
    await pumped.tick()
    said = await got.get()
    assert '"samples":1' in said
    assert seqs([said]) == [1]


async def test_a_crowd_that_comes_at_once_costs_one_reading_and_each_frame_one(
    attempt: Attempt, pumped: Pumped, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, readings = frames.read, []
    monkeypatch.setattr(frames, "read", lambda *args, **named: [readings.append(1), read(*args, **named)][1])
    await store(attempt, [train(1)])
    await pumped.tick()
    crowd = [pumped.viewer() for _ in range(50)]
    said = [[await got.get()] for got in crowd]
    for seq in (2, 3, 4):
        await store(attempt, [train(seq)])
        await pumped.tick()
        said = [[*before, await got.get()] for before, got in zip(said, crowd, strict=True)]
    assert [seqs(each) for each in said] == [[1, 2, 3, 4]] * 50
    assert len(readings) == 1 + 1 + 3


async def test_a_page_that_knows_more_than_the_reader_gets_each_row_once(attempt: Attempt, pumped: Pumped) -> None:
    await store(attempt, [train(seq) for seq in range(1, 6)])
    got = pumped.viewer(seq=3)  # its series was read after the reader's last look
    said = [await got.get()]
    await pumped.tick()
    await store(attempt, [train(6)])
    await pumped.tick()
    while seqs(said)[-1:] != [6]:
        said.append(await got.get())
    assert seqs(said) == [4, 5, 6]


async def test_whoever_is_further_behind_than_frames_are_kept_loses_nothing(attempt: Attempt, pumped: Pumped) -> None:
    go = asyncio.Event()
    said: list[str] = []

    async def slowly(text: str) -> None:
        said.append(text)
        await go.wait()

    viewer = pump.Viewer(attempt.run_id, frames.StreamCursor(0, 0), slowly)
    pumped.tasks.append(asyncio.create_task(viewer.run(pumped.reader)))
    last = 3 * pump.MAX_KEPT_FRAMES
    for seq in range(1, last + 1):
        await store(attempt, [train(seq)])
        await pumped.tick()
    go.set()
    while seqs(said)[-1:] != [last]:
        await asyncio.sleep(0.01)
    assert seqs(said) == list(range(1, last + 1))
    assert len(said) < last
