"""Lines that nobody takes, and how far a dead supervisor had come with its trainer's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.workers.supervisor.attempts import RUN, attempt
from workers.contract import EventKind, to_dict
from workers.host import reaper
from workers.supervisor import trainerlines
from workers.supervisor.control import Control, ControlError
from workers.supervisor.outbox import Outbox
from workers.supervisor.sync import deliver


@pytest.mark.parametrize("wrong", [{"t": 1e300}, {"step": -1}])
def test_a_line_with_a_time_or_a_step_that_nobody_takes_holds_back_none(
    wrong: dict[str, Any],
) -> None:
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    control.refuse_lines_with = json.dumps(wrong).strip("{}")
    lines = [{"seq": 1, "t": 1.0, "kind": "train", "step": 1, "data": {}} | wrong]
    lines += [{"seq": 2, "t": 2.0, "kind": "train", "step": 2, "data": {}}]
    assert deliver(client, "a", lines).ack == 2
    assert [line["kind"] for line in control.lines.values()] == ["note", "train"]
    client.close()
    control.close()


def test_a_host_whose_clock_is_far_ahead_stands_in_for_a_line_with_a_time_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    monkeypatch.setattr(time, "time", lambda: 5e9)
    control.refuse_lines_with = "5000000000"
    assert deliver(client, "a", [{"seq": 1, "t": 5e9, "kind": "train", "step": 1, "data": {}}]).ack == 1
    assert 0 <= control.lines[1]["t"] < 4e9
    client.close()
    control.close()


def test_what_a_dead_supervisor_had_read_of_its_trainer_is_counted_not_told_by_times(tmp_path: Path) -> None:
    told = [{"event": "stage"}, {"event": "log", "step": 1, "t": None}, {"event": "log", "step": 2, "t": -7}]
    told.append({"event": "reward_failed", "step": 2, "reward": "judge", "row": 1, "count": 1, "of": 8})
    last = [{"event": "save", "step": 2, "path": "checkpoints/2"}, {"event": "train_end", "step": 2}]
    raw = [json.dumps(line).encode() + b"\n" for line in (*told, *last)]
    raw[1:1] = [b"no json\n", b'{"event": "of another version"}\n']
    metrics, outbox = tmp_path / "metrics.jsonl", Outbox(tmp_path / "outbox.jsonl", first_seq=1)
    metrics.write_bytes(b"".join(raw))
    assert trainerlines.resume_position(tmp_path / "outbox.jsonl", metrics) == 0
    ends = []
    for line in (*told, *last):
        new = trainerlines.translate(line, folder=tmp_path, now=5.0)
        assert new is not None
        outbox.append(new.kind, new.data, t=new.t, step=new.step)
        outbox.append(EventKind.SYSTEM, {}, t=6.0)
        ends.append(trainerlines.resume_position(tmp_path / "outbox.jsonl", metrics))
    lengths = [len(part) for part in raw]
    assert ends == [sum(lengths[:count]) for count in (1, 4, 5, 6, 7, 8)]


def test_lines_passed_over_for_a_report_that_got_lost_are_passed_over_again(tmp_path: Path) -> None:
    """The control plane has two lines more than the disk; they may be the trainer's fourth and fifth."""
    with attempt(tmp_path) as made:
        made.folder.create()
        made.folder.write_spec_once(json.dumps(to_dict(made.spec)))
        outbox = Outbox(made.folder / "outbox.jsonl", first_seq=1)
        for step in range(1, 4):
            outbox.append(EventKind.TRAIN, {}, t=1.0, step=step)
        outbox.close()
        steps = [{"event": "log", "step": step, "values": {}} for step in range(1, 11)]
        (made.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
        made.control.store([{"seq": s, "t": 1.0, "kind": "train", "step": s, "data": {}} for s in range(1, 6)])
        made.control.refuse["reaped"] = 503
        for _ in range(2):
            with pytest.raises(ControlError):
                reaper.reap(RUN, 1, TOKEN, made.settings)
        del made.control.refuse["reaped"]
        reaper.reap(RUN, 1, TOKEN, made.settings)
        assert made.control.train_steps() == list(range(1, 11))
        assert list(made.control.lines) == list(range(1, 11))


@pytest.mark.parametrize(
    ("path", "size"),
    [("checkpoints/checkpoint-1", 100), ("checkpoints/../../other", 0), ("checkpoints/link", 0), ("\0", 0), ("", 0)],
)
def test_only_what_lies_among_the_checkpoints_is_measured(tmp_path: Path, path: str, size: int) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    for each in (folder / "checkpoints" / "checkpoint-1", other):
        each.mkdir(parents=True)
        (each / "weights").write_bytes(b"x" * 100)
    (folder / "checkpoints" / "link").symlink_to(other)
    new = trainerlines.translate({"event": "save", "step": 1, "path": path}, folder=folder, now=1.0)
    assert new is not None
    assert new.data["bytes"] == size


@pytest.mark.parametrize("wrong", [{}, {"reward": ["a"], "row": True, "count": "1"}, {"message": "x" * 10_000}])
def test_a_reward_failure_of_any_shape_becomes_a_line_of_bounded_size(tmp_path: Path, wrong: dict[str, Any]) -> None:
    new = trainerlines.translate({"event": "reward_failed", **wrong}, folder=tmp_path, now=1.0)
    assert new is not None
    assert set(new.data) == {"reward", "row", "kind", "message", "count", "of"}
    assert (new.data["row"], new.data["count"]) == (None, None)
    assert len(json.dumps(new.data)) < 2_000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"stopped": True}, "stopped early, as asked"),
        ({"failed": True, "stopped": False}, "a reward failed on too many rows"),
        ({}, "reached its last step"),
    ],
)
def test_the_trainers_last_word_says_how_it_ended(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    new = trainerlines.translate({"event": "train_end", **line}, folder=tmp_path, now=1.0)
    assert new is not None
    assert says in new.data["text"]
