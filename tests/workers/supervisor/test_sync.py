"""When lines go to the control plane, and what its answers change; with a clock of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers.supervisor.attempts import QUICK
from workers.contract.reports.chat import Ask, ChatNews, ChatTurn, Sampling
from workers.contract.reports.lines import SyncAnswer
from workers.contract.wire.names import EventKind
from workers.settings import HostSettings
from workers.supervisor.reports.chatfile import ChatFile
from workers.supervisor.reports.control import ControlRefused
from workers.supervisor.reports.outbox import Outbox
from workers.supervisor.reports.sync import Syncer

SETTINGS = HostSettings(runs_dir=Path("/nowhere"), control_url="http://127.0.0.1:1", **QUICK)


class Answers:
    """A control plane of one method, which stores what it is sent and says `watched` as told."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.watched = False
        self.again_s: float | None = None
        self.ack = 0
        self.error: Exception | None = None

    def sync(self, attempt_id: str, lines: list[bytes], *, turns_after: int | None = None) -> SyncAnswer:
        if self.error is not None:
            raise self.error
        self.batches.append([json.loads(line)["seq"] for line in lines])
        self.ack = max([self.ack, *self.batches[-1]])
        return SyncAnswer(self.ack, None, self.watched, again_s=self.again_s)


def a_syncer(tmp_path: Path, answers: Any) -> tuple[Syncer, Outbox]:
    outbox = Outbox(tmp_path / "o", first_seq=1)
    settings = replace(SETTINGS, heartbeat_s=2.0, batch_s=1.0, batch_watched_s=0.1)
    made = Syncer("a", outbox, answers, settings, acked=0, on_response=lambda a: None, write_ack=lambda seq: None)
    return made, outbox


def test_an_unwatched_run_gathers_lines_for_a_second_and_a_watched_one_does_not(tmp_path: Path) -> None:
    answers = Answers()
    syncer, outbox = a_syncer(tmp_path, answers)
    syncer.tick(100.0)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(100.4) == pytest.approx(0.6)
    answers.watched = True
    syncer.tick(101.0)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(101.05) == pytest.approx(0.05)
    syncer.tick(101.1)
    assert answers.batches == [[], [1], [2]]


@pytest.mark.parametrize(("asked", "waits"), [(2.0, 2.0), (0.5, 1.0), (60.0, 3.0), (None, 1.0)])
def test_an_unwatched_run_comes_again_when_it_is_asked_to(tmp_path: Path, asked: float | None, waits: float) -> None:
    """Never later than a stop whose message was lost may arrive."""
    answers = Answers()
    answers.again_s = asked
    syncer, outbox = a_syncer(tmp_path, answers)
    syncer.tick(100.0)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(100.4) == pytest.approx(waits - 0.4)
    syncer.hurry()
    syncer.tick(100.5)
    assert answers.batches == [[], [1]]


def test_a_run_whose_page_opens_sends_at_once_and_is_quick_until_every_web_process_knows(tmp_path: Path) -> None:
    answers = Answers()
    answers.again_s = 2.0
    syncer, outbox = a_syncer(tmp_path, answers)
    syncer.tick(100.0)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(100.5) == pytest.approx(1.5)
    syncer.wake(100.5)
    syncer.tick(100.5)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(100.55) == pytest.approx(0.05)
    syncer.tick(103.0)
    assert answers.batches == [[], [1], [2]]
    assert not syncer.watched


def test_a_heartbeat_fills_the_silence(tmp_path: Path) -> None:
    answers = Answers()
    syncer, _ = a_syncer(tmp_path, answers)
    assert syncer.tick(100.0) == pytest.approx(2.0)
    syncer.tick(101.0)
    syncer.tick(102.0)
    assert answers.batches == [[], []]


def test_an_event_does_not_wait_for_the_batch(tmp_path: Path) -> None:
    answers = Answers()
    syncer, outbox = a_syncer(tmp_path, answers)
    syncer.tick(100.0)
    outbox.append(EventKind.PHASE, {}, t=1.0)
    syncer.hurry()
    syncer.tick(100.1)
    assert answers.batches == [[], [1]]


def test_lines_added_while_others_are_sent_wait_for_the_next_batch(tmp_path: Path) -> None:
    class Slow(Answers):
        """During each request the trainer writes one more line."""

        def sync(self, *args: Any, **asked: Any) -> SyncAnswer:
            outbox.append(EventKind.TRAIN, {}, t=1.0)
            assert len(self.batches) < 5, "the sender follows the trainer without end"
            return super().sync(*args, **asked)

    answers = Slow()
    syncer, outbox = a_syncer(tmp_path, answers)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    assert syncer.tick(100.0) == pytest.approx(1.0)
    syncer.tick(101.0)
    assert answers.batches == [[1], [2]]


def test_a_control_plane_that_lost_its_last_lines_gets_them_again(tmp_path: Path) -> None:
    answers = Answers()
    syncer, outbox = a_syncer(tmp_path, answers)
    for _ in range(5):
        outbox.append(EventKind.TRAIN, {}, t=1.0)
    syncer.tick(100.0)
    answers.ack = 2
    syncer.tick(110.0)
    syncer.tick(120.0)
    assert answers.batches == [[1, 2, 3, 4, 5], [], [3, 4, 5]]
    assert syncer.is_drained()


def test_a_control_plane_that_knows_the_attempt_again_is_not_given_up(tmp_path: Path) -> None:
    answers = Answers()
    syncer, outbox = a_syncer(tmp_path, answers)
    outbox.append(EventKind.TRAIN, {}, t=1.0)
    answers.error = ControlRefused(404, "no such attempt")
    syncer.tick(100.0)
    syncer.tick(102.0)
    assert syncer.given_up
    answers.error = None
    syncer.tick(110.0)
    assert (syncer.given_up, syncer.failing, answers.batches) == (False, False, [[1]])


class Chatting(Answers):
    """A control plane with turns for a served model."""

    def __init__(self, *turns: ChatTurn) -> None:
        super().__init__()
        self.turns = turns
        self.present = True
        self.asked: list[int | None] = []

    def sync(self, attempt_id: str, lines: list[bytes], *, turns_after: int | None = None) -> SyncAnswer:
        self.asked.append(turns_after)
        answer = super().sync(attempt_id, lines)
        turns = tuple(turn for turn in self.turns if turn.number > (turns_after or 0))
        return replace(answer, chat=ChatNews(turns, 0, self.present))


def test_turns_reach_the_program_once_and_soon_while_somebody_chats(tmp_path: Path) -> None:
    turns = [ChatTurn(number, (Ask("base", plain="Hello"),), Sampling()) for number in (1, 2)]
    answers = Chatting(*turns)
    settings = replace(SETTINGS, heartbeat_s=2.0, heartbeat_chat_s=0.2)
    outbox, chat = Outbox(tmp_path / "o", first_seq=1), ChatFile(tmp_path / "chat.jsonl")
    ignored: Any = lambda _: None  # noqa: E731
    syncer = Syncer("a", outbox, answers, settings, acked=0, on_response=ignored, write_ack=ignored, chat=chat)  # type: ignore[arg-type]
    assert syncer.tick(100.0) == pytest.approx(0.2)
    answers.present = False
    assert syncer.tick(100.2) == pytest.approx(2.0)
    syncer.tick(102.2)
    assert answers.asked == [0, 2, 2]
    written = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    assert [([turn["number"] for turn in line["turns"]], line["present"]) for line in written] == [
        ([1, 2], True),
        ([], False),
    ]
