"""Limits and early-stop rules end a run on its host, after a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, attempt
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec, Spent
from workers.contract.run.spec import Placement
from workers.contract.wire.names import EndReason, StopMode
from workers.supervisor.limits import LimitWatch, ReachedLimit

HOUR = 3600.0


def watch(limits: LimitsSpec, **placement: Any) -> LimitWatch:
    return LimitWatch(limits, Placement("box", gpus=(0, 1), **placement), began=0.0)


def test_hours_count_over_all_attempts() -> None:
    made = watch(LimitsSpec(hours=2.0), spent=Spent(hours=1.5))
    assert made.reached(0.4 * HOUR) is None
    assert made.metrics(0.4 * HOUR) == {"limits/hours": pytest.approx(1.9)}
    assert made.reached(0.5 * HOUR) == ReachedLimit(EndReason.LIMIT_REACHED, "it has used 2 of 2 hours.")


def test_money_is_the_price_of_the_leased_gpus_and_no_limit_without_one() -> None:
    limits = LimitsSpec(money=10.0)
    made = watch(limits, gpu_hour_price=2.0, currency="$", spent=Spent(money=4.0))
    assert made.reached(1.4 * HOUR) is None
    assert made.reached(1.5 * HOUR) == ReachedLimit(EndReason.LIMIT_REACHED, "it has used 10.00 of 10.00 $.")
    assert watch(limits).reached(1e9) is None


def test_tokens_are_those_that_trl_counts() -> None:
    made = watch(LimitsSpec(tokens=1000))
    made.note(1, {"num_tokens": 999.0})
    assert made.reached(0.0) is None
    made.note(2, {"loss": 1.0})
    assert made.metrics(0.0) == {"limits/tokens": 999.0}
    made.note(3, {"num_tokens": 1200.0})
    assert made.reached(0.0) == ReachedLimit(EndReason.LIMIT_REACHED, "it has used 1,200 of 1,000 tokens.")


@pytest.mark.parametrize(
    ("rule", "values", "text", "best"),
    [
        (NoBetterSpec("eval_reward", 20), {10: 0.2, 20: 0.5, 30: 0.4, 40: 0.5}, "its best was 0.5 at step 20", 20),
        (NoBetterSpec("loss", 20, higher=False), {10: 2, 20: 1, 30: 1.5, 40: 3}, "its best was 1 at step 20", 20),
        (NoBetterSpec("reward", 2, least_gain=0.1), {1: 0.5, 2: 0.55, 3: 0.59}, "its best was 0.5 at step 1", 1),
    ],
)
def test_a_metric_that_no_longer_improves_ends_the_run(
    rule: NoBetterSpec, values: dict[int, float], text: str, best: int
) -> None:
    made = watch(LimitsSpec(no_better=rule))
    for step, value in values.items():
        assert made.reached(0.0) is None
        made.note(step, {rule.metric: value})
        made.note(step + 1, {"other": 0.0})  # other metrics don't count its steps
    assert made.reached(0.0) == ReachedLimit(EndReason.EARLY_STOPPED, f"{rule.condition}: {text}.", best)


def test_a_metric_beyond_its_bound_ends_the_run_after_steps_in_a_row() -> None:
    made = watch(LimitsSpec(beyond=BeyondSpec("kl", 0.5, 3)))
    for step, value in enumerate([0.1, 0.6, 0.7, 0.4, 0.6, 0.7], 1):
        made.note(step, {"kl": value})
    assert made.reached(0.0) is None
    assert made.metrics(0.0) == {"limits/beyond": 2.0}
    made.note(7, {"kl": 0.8})
    words = "the metric kl has been above 0.5 for 3 steps: it is 0.8."
    assert made.reached(0.0) == ReachedLimit(EndReason.EARLY_STOPPED, words, 4)


def test_a_metric_that_never_comes_is_told_once() -> None:
    made = watch(LimitsSpec(no_better=NoBetterSpec("eval_reward", 10)))
    made.note(99, {"reward": 1.0})
    assert made.unseen() == ""
    made.note(100, {"reward": 1.0})
    assert made.unseen() == "The metric eval_reward was not logged in 100 steps: its rule can't end the run."
    assert made.unseen() == ""


# --- attempts -------------------------------------------------------------------------------------------------


def limit_of(made: Attempt) -> dict[str, Any]:
    (event,) = made.control.of_kind("limit")
    return dict(event["data"])


@pytest.mark.processes
def test_a_rule_ends_the_run_after_a_checkpoint(tmp_path: Path) -> None:
    rule = NoBetterSpec("loss", 3)  # it falls from the first step on
    with attempt(tmp_path, trainer="forever", limits=LimitsSpec(no_better=rule)) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "early_stopped"
        assert ended["detail"] == "the metric loss has not improved for 3 steps: its best was 1 at step 1."
        assert limit_of(made) == {"text": ended["detail"], "reason": "early_stopped", "recommended": 1}
        assert made.control.of_kind("checkpoint")
        assert ended["receipt"]["free"] is True


@pytest.mark.processes
def test_hours_end_the_run_while_the_control_plane_is_away(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", limits=LimitsSpec(hours=2 / HOUR)) as made:
        made.launch()
        made.wait_for_step(1)
        made.control.stop()
        wait_until(lambda: made.outbox()[-1]["kind"] == "ended", made.why)
        made.control.start()
        assert made.wait_for_end()["reason"] == "limit_reached"


@pytest.mark.processes
@pytest.mark.parametrize(("mode", "reason"), [(StopMode.SAVE, "limit_reached"), (StopMode.NOW, "stopped_by_user")])
def test_a_stop_while_a_limit_saves(tmp_path: Path, mode: StopMode, reason: str) -> None:
    with attempt(tmp_path, trainer="forever,gate_save", limits=LimitsSpec(hours=0.2 / HOUR)) as made:
        made.launch()
        wait_until(lambda: "stopping" in made.control.phases(), made.why)
        made.ask_to_stop(mode)
        if mode == StopMode.SAVE:
            wait_until(lambda: made.control.of_kind("stop_seen"), made.why)
            (made.folder / "gate.save").touch()
        assert made.wait_for_end()["reason"] == reason


@pytest.mark.processes
def test_a_limit_whose_trainer_can_not_save_says_so(tmp_path: Path) -> None:
    limits = LimitsSpec(hours=0.3 / HOUR)
    with attempt(tmp_path, trainer="forever,no_save", limits=limits, save_deadline_s=0.5) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "limit_reached"
        assert ended["detail"].endswith("The trainer did not save within 0.5 s.")
