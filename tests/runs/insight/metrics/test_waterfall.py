"""A step on one time axis: what is kept of it, who was idle, and what a switch would do to it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.platform.accounts.models import ApiScope
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.step_spans import StepSpans
from runs.engine.transitions import move
from runs.insight.metrics import folding, waterfall
from runs.intake.host_api import ingest
from tests.runs.api.clients import Program
from tests.runs.builders import SERVER, a_host, a_run, a_user, an_attempt, rewards_named
from workers.contract.reports.lines import OutboxLine
from workers.contract.wire.names import EndReason, EventKind

pytestmark = pytest.mark.django_db

ALTERNATING = [
    ["trainer", "weight_sync", 0.0, 1.0],
    ["vllm", "weight_sync", 0.0, 1.0],
    ["vllm", "generation", 1.0, 4.0],
    ["rewards", "rewards", 5.0, 2.0],
    ["reward:judged", "rewards", 5.0, 2.0],
    ["trainer", "update", 7.0, 2.0],
    ["trainer", "update", 9.0, 0.5],
    ["trainer", "optimizer", 9.5, 0.5],
]
AHEAD = [["vllm", "generation", 0.0, 4.0], ["trainer", "update", 0.0, 3.0], ["trainer", "weight_sync", 4.0, 1.0]]


def a_line(seq: int, kind: EventKind, data: dict[str, Any], step: int | None = None, t: float = 1000.0) -> OutboxLine:
    return OutboxLine(seq=seq, t=t, kind=kind, step=step, data=data)


def told(seq: int, step: int, spans: Any = ALTERNATING, seconds: float = 10.0) -> OutboxLine:
    return a_line(seq, EventKind.SPANS, {"began": 1000.0 + 10 * step, "seconds": seconds, "spans": spans}, step=step)


def an_attempt_of(**run: Any) -> Attempt:
    a_host(gpus=2)
    params = {"endpoint": "J", "model": "m"}
    judged = rewards_named("judged", [{"name": "judged", "function": "judge", "params": params}])
    return an_attempt(run=a_run(hardware=SERVER, reward_version=judged, **run))


def view_of(attempt: Attempt, step: int | None = None) -> waterfall.StepView:
    view = waterfall.of_run(Run.objects.get(pk=attempt.run_id), step)
    assert view is not None
    return view


def test_lanes_their_idle_shares_and_what_one_step_ahead_would_give() -> None:
    attempt = an_attempt_of()
    ingest.accept(attempt, [told(1, 2)])
    view = view_of(attempt)
    assert [lane.label for lane in view.lanes] == ["vLLM", "Trainer", "Rewards", "judged"]
    idle = {lane.key: round(lane.idle, 3) for lane in view.lanes if lane.idle is not None}
    assert idle == {"vllm": 0.5, "trainer": 0.6}
    assert [lane.gaps for lane in view.lanes if lane.key == "trainer"] == [((1.0, 6.0),)]
    assert len([bar for lane in view.lanes for bar in lane.bars if bar.phase == "forward and backward"]) == 2
    sentences = " ".join(view.sentences)
    assert "Idle: vLLM 50%, the trainer 60%." in sentences
    assert "One step ahead would overlap generation with training, which is about 1.4 times as fast." in sentences
    assert "The step waits 2 s for rewards" in sentences
    assert [(switch.name, switch.on, switch.other_s) for switch in view.switches] == [
        ("One step ahead", False, 7.0),
        ("Rewards beside generation", False, 8.0),
    ]


def test_what_overlaps_is_told_by_what_the_step_would_take_without() -> None:
    attempt = an_attempt_of(rewards_beside=True, ahead=True)
    early = [["reward:judged", "rewards", 1.0, 2.5], ["rewards", "rewards", 4.0, 0.5]]
    ingest.accept(attempt, [told(1, 2, [*AHEAD, *early], seconds=5.0)])
    by_name = {switch.name: switch for switch in view_of(attempt).switches}
    assert (by_name["One step ahead"].on, by_name["One step ahead"].other_s) == (True, 8.0)
    assert (by_name["Rewards beside generation"].on, by_name["Rewards beside generation"].other_s) == (True, 7.5)
    assert not [switch.advice for switch in by_name.values() if switch.advice]


def test_the_median_of_the_steps_that_generate_is_shown_unless_one_is_chosen() -> None:
    attempt = an_attempt_of()
    reused = [["trainer", "update", 0.0, 1.0]]
    lines = [
        told(1, 1, seconds=90.0),  # compiles
        *(told(step, step, seconds=8.0 + step) for step in (2, 3, 4)),
        *(told(step, step, reused, seconds=1.0) for step in (5, 6, 7)),
    ]
    ingest.accept(attempt, lines)
    view = view_of(attempt)
    assert (view.step, view.seconds, view.median_of, view.left_out) == (3, 11.0, 3, 3)
    assert view.offered == (7, 6, 5, 4, 3, 2, 1)
    assert (view_of(attempt, 1).seconds, view_of(attempt, 1).median_of) == (90.0, 0)
    assert waterfall.of_run(view.run, 8) is None


def test_a_resume_takes_back_later_steps_and_old_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    first = an_attempt_of()
    ingest.accept(first, [told(seq, seq) for seq in range(1, 5)])
    move(first, RunStatus.FAILED, reason=EndReason.OOM, actor="test")
    second = Attempt.objects.create(pk=f"{first.run_id}-2", run=first.run, number=2, first_seq=5, last_seq=4)
    training = a_line(5, EventKind.TRAINING, {"max_steps": 10, "step": 2}, step=2)
    ingest.accept(second, [training, told(6, 3)])
    assert list(StepSpans.objects.order_by("seq").values_list("seq", "step")) == [(1, 1), (2, 2), (6, 3)]
    monkeypatch.setattr(folding, "KEEP_STEPS", 2)
    folding._prune(first.run_id, 6)
    assert sorted(StepSpans.objects.values_list("step", flat=True)) == [2, 3]


def test_the_use_of_both_sides_gpus_is_told_where_it_was_sampled() -> None:
    attempt = an_attempt_of()
    samples = [
        a_line(seq, EventKind.SYSTEM, {"gpu/0/util_percent": use, "gpu/1/util_percent": 100.0 - use}, t=1020.0 + seq)
        for seq, use in ((1, 80.0), (2, 60.0), (3, 70.0))
    ]
    ingest.accept(attempt, [*samples, told(4, 2)])
    Attempt.objects.filter(pk=attempt.pk).update(placement={"host": "h1", "gpus": [0], "server_gpus": [1]})
    uses = view_of(attempt).gpus
    assert [(use.label, use.mean, use.t) for use in uses] == [
        ("the trainer’s GPUs", 70.0, (1.0, 2.0, 3.0)),
        ("vLLM’s GPUs", 30.0, (1.0, 2.0, 3.0)),
    ]


def test_the_page_the_comparison_and_the_api_show_it() -> None:
    attempt = an_attempt_of()
    ingest.accept(attempt, [told(1, 2), told(2, 3)])
    client = Client()
    client.force_login(a_user())
    page = client.get(f"/runs/{attempt.run_id}/waterfall/?step=3").content.decode()
    assert "Step 3 took 10 s" in page
    assert "forward and backward" in page
    assert "was not recorded" in client.get(f"/runs/{attempt.run_id}/waterfall/?step=9").content.decode()
    compared = client.get(f"/runs/compare/waterfalls/?runs={attempt.run_id}").content.decode()
    assert 'data-waterfall="10.0"' in compared
    program = Program(ApiScope.READ)
    told_of = program.get(f"runs/{attempt.run_id}/waterfall", step=3).json()
    assert (told_of["step"], told_of["steps"], [lane["key"] for lane in told_of["lanes"]][:2]) == (
        3,
        [3, 2],
        ["vllm", "trainer"],
    )
    missing = program.get(f"runs/{attempt.run_id}/waterfall", step=9)
    assert (missing.status_code, "Step 9 is not recorded." in missing.content.decode()) == (404, True)


@pytest.mark.parametrize(
    "spans",
    [[["trainer", "update", 0.0]], [["", "update", 0.0, 1.0]], [["trainer", "update", -1.0, 1.0]], "all", [["a"] * 4]],
)
def test_lines_that_hold_no_spans_are_refused(spans: Any) -> None:
    attempt = an_attempt_of()
    with pytest.raises(ingest.BadLine):
        ingest.accept(attempt, [told(1, 2, spans)])
