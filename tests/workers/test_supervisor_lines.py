"""Lines that nobody takes, and how far a dead supervisor had come with its trainer's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from workers.contract import EventKind
from workers.supervisor import trainerlines
from workers.supervisor.control import Control
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


def test_what_a_dead_supervisor_had_read_of_its_trainer_is_counted_not_told_by_times(tmp_path: Path) -> None:
    told = [{"event": "stage"}, {"event": "log", "step": 1, "t": None}, {"event": "log", "step": 2, "t": -7}]
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
    assert ends == [sum(lengths[:count]) for count in (1, 4, 5, 6, 7)]
