"""The trainer's lines: which are taken, which the control plane refuses, and how far a dead supervisor had come."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.workers.supervisor.attempts import RUN, Attempt, attempt
from workers.contract.reports.lines import Line, numbered
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import TRAINER_KINDS, EventKind
from workers.host import reaper
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control, ControlError
from workers.supervisor.reports.outbox import Outbox, line_of
from workers.supervisor.reports.sync import deliver
from workers.supervisor.reports.trainerlines import MAX_EVENT_BYTES, TrainerProgress, trainer_line


def line(kind: str, step: int | None, data: dict[str, Any], t: float = 1.0) -> bytes:
    """As a trainer writes it."""
    return json.dumps({"t": t, "kind": kind, "step": step, "data": data}, separators=(",", ":")).encode()


def numbered_line(seq: int, *, t: float = 1.0, step: int = 1) -> Line:
    read = line_of(numbered(line("train", step, {}, t), seq))
    assert read is not None
    return read


@pytest.mark.parametrize("wrong", [{"t": 1e300}, {"step": -1}])
def test_a_line_with_a_time_or_a_step_that_nobody_takes_holds_back_none(
    wrong: dict[str, Any],
) -> None:
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    control.refuse_lines_with = json.dumps(wrong).strip("{}")
    assert deliver(client, "a", [numbered_line(1, **wrong), numbered_line(2)]).ack == 2
    assert [stored["kind"] for stored in control.lines.values()] == ["note", "train"]
    client.close()
    control.close()


def test_an_end_that_is_refused_keeps_its_reason_and_its_receipt() -> None:
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    control.refuse_lines_with = "unheard of"
    data = {"reason": "completed", "detail": "unheard of", "exit_codes": {"trainer": 0}, "receipt": {"free": True}}
    end = line_of(numbered(line("ended", 3, data), 1))
    assert end is not None
    assert deliver(client, "a", [end]).ack == 1
    assert control.ended is not None
    assert (control.ended["reason"], control.ended["receipt"]) == ("completed", {"free": True})
    client.close()
    control.close()


def test_broken_bytes_among_the_lines_are_stood_in_for() -> None:
    """As a power failure leaves them: its head is that of a line, and nobody has looked at the rest."""
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    broken = line_of(numbered(line("train", 1, {}), 1).replace(b"{}}", b"{\x1f\x02}}"))
    assert broken is not None
    assert deliver(client, "a", [broken, numbered_line(2)]).ack == 2
    assert [stored["kind"] for stored in control.lines.values()] == ["note", "train"]
    client.close()
    control.close()


def test_a_host_whose_clock_is_far_ahead_stands_in_for_a_line_with_a_time_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control = FakeControl().start()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    monkeypatch.setattr(time, "time", lambda: 5e9)
    control.refuse_lines_with = "5000000000"
    assert deliver(client, "a", [numbered_line(1, t=5e9)]).ack == 1
    assert 0 <= control.lines[1]["t"] < 4e9
    client.close()
    control.close()


REWARD_FAILED = {"reward": "judge", "row": 1, "kind": "http", "message": "m", "count": 1, "of": 8}
CHECKPOINT = {"step": 2, "path": "checkpoints/2", "bytes": 9, "kept": [2]}
WITH_VERSIONS = {**CHECKPOINT, "versions": {"trl": "1.16.0"}}
WRITTEN = (
    line("stage", None, {"stage": "x"}),
    line("train", 1, {"loss": 1.5}),
    line("train", 2, {"loss": 2}, t=0.5),
    line("metrics_left_out", 2, {"names": "kl"}),
    line("reward_failed", 2, REWARD_FAILED),
    line("checkpoint", 2, WITH_VERSIONS),
    line("trained", 2, {"how": "stopped"}),
)


@pytest.mark.parametrize("known", range(len(WRITTEN) + 1))
def test_what_a_dead_supervisor_had_read_of_its_trainer_is_counted_not_told_by_times(
    tmp_path: Path, known: int
) -> None:
    with attempt(tmp_path) as made:
        made.folder.create()
        made.folder.write_spec_once(json.dumps(to_dict(made.spec)))
        outbox = Outbox(made.folder / "outbox.jsonl", first_seq=1)
        outbox.append(EventKind.SYSTEM, {}, t=6.0)
        for text in WRITTEN[:known]:
            outbox.add(text)
            outbox.append(EventKind.SYSTEM, {}, t=6.0)
        outbox.close()
        strange = [b"no json", b'{"event":"of another version"}']
        (made.folder / "metrics.jsonl").write_bytes(b"\n".join([*WRITTEN[:1], *strange, *WRITTEN[1:], b'{"t":1,"ki']))
        reaper.reap(RUN, 1, TOKEN, made.settings)
        stored = [row for row in control_lines(made) if row["kind"] in TRAINER_KINDS]
        assert [{name: row[name] for name in ("t", "kind", "step", "data")} for row in stored] == [
            json.loads(text) for text in WRITTEN
        ]
        assert "Dropped 2 of the trainer's lines because they could not be parsed." in made.control.reaped[0]["detail"]


def control_lines(made: Attempt) -> list[dict[str, Any]]:
    return [row for _, row in sorted(made.control.lines.items())]


def test_lines_passed_over_for_a_report_that_got_lost_are_passed_over_again(tmp_path: Path) -> None:
    """The control plane has two lines more than the disk; they may be the trainer's fourth and fifth."""
    with attempt(tmp_path) as made:
        made.folder.create()
        made.folder.write_spec_once(json.dumps(to_dict(made.spec)))
        outbox = Outbox(made.folder / "outbox.jsonl", first_seq=1)
        for step in range(1, 4):
            outbox.append(EventKind.TRAIN, {}, t=1.0, step=step)
        outbox.close()
        steps = [line("train", step, {}) + b"\n" for step in range(1, 11)]
        (made.folder / "metrics.jsonl").write_bytes(b"".join(steps))
        made.control.store([{"seq": s, "t": 1.0, "kind": "train", "step": s, "data": {}} for s in range(1, 6)])
        made.control.refuse["reaped"] = 503
        for _ in range(2):
            with pytest.raises(ControlError):
                reaper.reap(RUN, 1, TOKEN, made.settings)
        del made.control.refuse["reaped"]
        reaper.reap(RUN, 1, TOKEN, made.settings)
        assert made.control.train_steps() == list(range(1, 11))
        assert list(made.control.lines) == list(range(1, 11))


# --- what a trainer writes ------------------------------------------------------------------------------------


def test_a_trainers_line_goes_on_as_it_is(subtests: pytest.Subtests) -> None:
    for text in WRITTEN:
        with subtests.test(text=text):
            taken = trainer_line(text)
            assert taken is not None
            assert json.loads(numbered(taken.text, 7)) == {"seq": 7, **json.loads(text)}


GOOD = line("train", 1, {"loss": 1.5})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[1]",
        b"null",
        GOOD[:-1],
        GOOD[:-2] + b",}}",
        GOOD + b"}",
        GOOD + GOOD,
        b" " + GOOD,
        GOOD.replace(b":1.5", b":NaN"),
        GOOD.replace(b":1.5", b":1e999"),
        GOOD.replace(b":1.5", b":" + b"9" * 400),
        GOOD.replace(b":1.5", b":" + b"9" * 5_000),
        GOOD.replace(b":1.5", b":" + b"[" * 100_000),
        GOOD.replace(b":1.5", b":true"),
        GOOD.replace(b":1.5", b':"x"'),
        GOOD.replace(b":1.5", b":null"),
        GOOD.replace(b"loss", b"\xff"),
        GOOD.replace(b"loss", b"\xed\xa0\x80"),
        GOOD.replace(b"loss", b"n" * 201),
        GOOD.replace(b'"t":1.0', b'"t":1e999'),
        GOOD.replace(b'"t":1.0', b'"t":null'),
        GOOD.replace(b'"step":1', b'"step":2147483648'),
        GOOD.replace(b'"step":1', b'"step":-1'),
        GOOD.replace(b'"step":1', b'"step":true'),
        GOOD.replace(b'{"t"', b'{"seq":1,"t"'),
        GOOD.replace(b'{"t"', b'{"seq":0,"t"'),
        GOOD.replace(b'{"t"', b'{"kind":"ended","t"'),
        GOOD.replace(b"}}", b'},"seq":1}'),
        GOOD.replace(b"}}", b'},"kind":"ended"}'),
        json.dumps({"t": 1, "kind": "train", "step": 1, "data": {str(n): n for n in range(2_001)}}).encode(),
        line("train", 1, {str(n): n for n in range(2_001)}),
        line("system", None, {"host/cpu_percent": 1.0}),
        line("note", None, {"text": "x", "level": "info"}),
        line("phase", None, {"phase": "stopping", "reason": "completed"}),
        line("ended", None, {"reason": "completed"}),
        line("surprise", None, {}),
        line("stage", None, {"stage": ["x"]}),
        line("stage", None, {"stage": "x", "more": "y"}),
        line("stage", None, {"stage": "x" * MAX_EVENT_BYTES}),
        line("training", 0, {"max_steps": 2**40, "step": 0}),
        line("checkpoint", 2, {**CHECKPOINT, "bytes": -1}),
        line("checkpoint", 2, {**CHECKPOINT, "kept": ["2"]}),
        line("checkpoint", 2, {**CHECKPOINT, "versions": {"trl": 1}}),
        line("checkpoint", 2, {"step": 2, "bytes": 9, "kept": [2]}),
        line("reward_failed", 2, {**REWARD_FAILED, "row": True}),
        line("reward_failed", 2, {**REWARD_FAILED, "message": {"deep": ["x"]}}),
        line("reward_failed", 2, {"reward": "judge"}),
        b'{"event":"log","t":1,"step":1,"values":{"loss":1.5},"dropped":[]}',
    ],
    ids=lambda text: repr(text[:60]),
)
def test_a_line_of_any_other_shape_is_none(text: bytes) -> None:
    assert trainer_line(text) is None


def test_the_trainers_last_line_says_how_it_ended() -> None:
    progress = TrainerProgress()
    for text in WRITTEN:
        assert not progress.ended
        taken = trainer_line(text)
        assert taken is not None
        progress.note(taken)
    assert (progress.step, progress.ended, progress.stopped) == (2, True, True)


def test_a_figure_of_the_hosts_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", first_seq=1)
    outbox.append(EventKind.VLLM, {"vllm/requests_running": 1.0, "vllm/kv_cache_percent": float("nan")}, t=1.0)
    assert [read.data() for read in outbox.read_after(0, max_bytes=1000)[0]] == [{"vllm/requests_running": 1.0}]
    outbox.close()


def test_words_in_a_line_are_no_end_of_the_attempt(tmp_path: Path) -> None:
    """A trainer may name the kind of a failure as it likes."""
    outbox = Outbox(tmp_path / "outbox.jsonl", first_seq=1)
    outbox.add(line("reward_failed", 2, {**REWARD_FAILED, "kind": "ended"}))
    assert not AttemptFolder(tmp_path).has_ended_line()
    outbox.append(EventKind.ENDED, {"reason": "completed"}, t=1.0)
    assert AttemptFolder(tmp_path).has_ended_line()
    outbox.close()
