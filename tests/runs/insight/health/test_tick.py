"""The tick: what the store holds becomes an assessment of the run, and events where findings open and close."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.engine import queries, timeline
from runs.engine.models import Attempt, HealthPreset, Run
from runs.engine.records import MetricRow, RunEvent
from runs.insight.health import tick as health
from runs.insight.metrics import folding
from runs.intake.host_api import ingest, uploads
from tests.runs.builders import a_host, a_run, an_attempt, train
from workers.contract.reports.lines import OutboxLine

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt(run=a_run(host=a_host(), grpo={"max_steps": 5000, "beta": 0.04}))


@pytest.fixture
def clock() -> Iterator[datetime]:
    """Rounds, each late enough that every run is looked at again."""
    now = timezone.now()
    return (now + n * health.ASSESSMENT_INTERVAL for n in range(1000))


def write(attempt: Attempt, steps: int, **values: float) -> None:
    attempt.refresh_from_db()
    first, step = attempt.last_seq + 1, Run.objects.get(pk=attempt.run_id).step + 1
    usual = {"reward": 0.5, "loss": 0.01, "kl": 0.05, "entropy": 0.4, "grad_norm": 0.5, "num_tokens": 1000.0 * first}
    ingest.accept(attempt, [train(first + n, step + n, **{**usual, **values}) for n in range(steps)])


def told(attempt: Attempt) -> list[tuple[str, str, str]]:
    events = RunEvent.objects.filter(run=attempt.run_id, kind=health.ALERT)
    return [(event.data["rule"], event.data["state"], event.data["level"]) for event in events]


def test_a_run_that_trains_is_assessed(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 40)
    assert health.tick(next(clock)) == 1
    run = Run.objects.get(pk=attempt.run_id)
    assert run.health["verdict"] == "well"
    assert run.health["step"] == 40
    assert queries.summary(run)["health"] == {"verdict": "well", "count": 0}


def test_a_finding_that_opens_and_closes_is_two_events(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 40)
    health.tick(next(clock))
    for kl in (5.0, 5.0, 0.01, 0.01):
        write(attempt, 25, kl=kl)
        health.tick(next(clock))
    assert told(attempt) == [("kl", "open", "bad"), ("kl", "closed", "bad")]
    opened = timeline.events(Run.objects.get(pk=attempt.run_id))[-2]
    assert opened["text"].startswith("KL drift: The policy stays 5 nats away")
    assert opened["step"] == 65


def test_the_same_figures_looked_at_twice_tell_nothing_twice(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 60, kl=5.0)
    for _ in range(3):
        health.tick(next(clock))
    assert len(told(attempt)) == 1


def test_watchers_get_new_values_now_and_then_though_the_verdict_stays(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    write(attempt, 120)
    states: list[str] = []
    for _ in range(7):
        write(attempt, 10)
        health.tick(next(clock))
        states.append(queries.summary(Run.objects.get(pk=attempt.run_id))["state"])
    assert [states.index(one) for one in states] == [0, 0, 0, 3, 3, 3, 6]


def test_watchers_are_told_at_once_of_figures_that_the_first_steps_did_not_have(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    write(attempt, 2)
    uploads.samples(attempt, 1, [{"step": 1, "completions": [{"text": "It is 7."}] * 8}])
    health.tick(next(clock))
    early = Run.objects.get(pk=attempt.run_id)
    write(attempt, 40)
    health.tick(next(clock))
    later = Run.objects.get(pk=attempt.run_id)
    assert (early.health["verdict"], later.health["verdict"]) == ("unknown", "well")
    assert queries.summary(early)["state"] != queries.summary(later)["state"]


def test_of_two_ticks_at_once_one_writes(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 60, kl=5.0)
    one, other = (Run.objects.prefetch_related("attempts").get(pk=attempt.run_id) for _ in range(2))
    preset, now = health.Presets().of(one), next(clock)
    assert health.look_at(one, preset, now)
    assert not health.look_at(other, preset, now)
    assert len(told(attempt)) == 1


def test_a_run_just_looked_at_is_left_alone(attempt: Attempt) -> None:
    write(attempt, 40)
    now = timezone.now()
    assert [health.tick(now), health.tick(now + timedelta(seconds=5))] == [1, 0]


def test_one_run_that_cannot_be_judged_hides_no_other(attempt: Attempt, clock: Iterator[datetime]) -> None:
    broken = an_attempt(run=a_run("old"))
    for each in (broken, attempt):
        write(each, 40)
    Run.objects.filter(pk=broken.run_id).update(spec={"grpo": 7})
    assert health.tick(next(clock)) == 1
    assert Run.objects.get(pk=broken.run_id).health == {}


def test_a_run_that_has_ended_is_judged_once_more_with_its_last_lines(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    write(attempt, 60, kl=5.0)
    Attempt.objects.filter(pk=attempt.pk).update(status="succeeded", ended_at=timezone.now())
    assert [health.tick(next(clock)) for _ in range(3)] == [1, 0, 0]
    assert Run.objects.get(pk=attempt.run_id).health["verdict"] == "bad"


def test_a_trial_has_no_health(attempt: Attempt, clock: Iterator[datetime]) -> None:
    Run.objects.filter(pk=attempt.run_id).update(kind="trial")
    write(attempt, 40)
    assert health.tick(next(clock)) == 0


def test_the_start_and_the_best_are_remembered_when_their_rows_are_gone(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    for reward in (0.2, 0.9, *[0.9] * 3, 0.3):
        write(attempt, 60, reward=reward)
        health.tick(next(clock))
        MetricRow.objects.filter(run=attempt.run_id, step__lte=Run.objects.get(pk=attempt.run_id).step - 70).delete()
    assert told(attempt) == [("reward_falling", "open", "bad")]


def test_steps_that_are_folded_away_are_read_from_the_chunks(attempt: Attempt, clock: Iterator[datetime]) -> None:
    for _ in range(4):
        write(attempt, 60, kl=5.0)
    folding.fold(attempt.run_id, at_least=1)
    MetricRow.objects.filter(run=attempt.run_id, step__lte=220).delete()
    health.tick(next(clock))
    run = Run.objects.get(pk=attempt.run_id)
    assert run.health["verdict"] == "bad"
    assert run.health["findings"][0]["since_step"] == 10


@pytest.mark.parametrize("folded", [False, True])
def test_generations_are_read_back_beyond_the_newest_lines(
    attempt: Attempt, clock: Iterator[datetime], folded: bool
) -> None:
    """With 16 updates a batch, 240 lines hold 15 generations."""
    spec = Run.objects.get(pk=attempt.run_id).spec
    spec["grpo"] |= {"num_iterations": 16}
    Run.objects.filter(pk=attempt.run_id).update(spec=spec)
    usual = {"loss": 0.01, "learning_rate": 1e-6}
    for first in range(1, 1601, 400):
        lines = [
            train(n, **usual, **({"reward": 0.9 if n < 1200 else 0.1} if n % 16 == 1 else {}))
            for n in range(first, first + 400)
        ]
        ingest.accept(attempt, lines)
        health.tick(next(clock))
    if folded:
        folding.fold(attempt.run_id, at_least=1)
        MetricRow.objects.filter(run=attempt.run_id, step__lte=1300).delete()
        health.tick(next(clock))
    assert ("reward_falling", "open", "bad") in told(attempt)
    finding = Run.objects.get(pk=attempt.run_id).health["findings"][0]
    assert (finding["rule"], finding["level"]) == ("reward_falling", "bad")


def test_solved_completions_are_remembered(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 3)
    rewards = [{"text": "7", "rewards": {"format": 1.0}, "reward": 1.0}, {"text": "8", "rewards": {"format": 0.0}}]
    uploads.samples(attempt, 1, [{"step": step, "completions": rewards} for step in (1, 2)])
    health.tick(next(clock))
    assert Run.objects.get(pk=attempt.run_id).health["memory"]["solved"] == [[1, 2, 1], [2, 2, 1]]


def test_an_idle_gpu_is_told_with_its_number(clock: Iterator[datetime]) -> None:
    attempt = an_attempt(run=a_run(host=a_host(gpus=2)))
    Attempt.objects.filter(pk=attempt.pk).update(placement={"gpus": [0], "server_gpus": [1]})
    machine: dict[str, Any] = {"gpu/0/util_percent": 90.0, "gpu/1/util_percent": 1.0}
    lines = [
        train(n, n // 10, loss=0.1, reward=0.5)
        if n % 10 == 0
        else OutboxLine(seq=n, t=1000.0 + n, kind="system", step=None, data=machine)
        for n in range(1, 400)
    ]
    ingest.accept(attempt, lines)
    health.tick(next(clock))
    assert told(attempt) == [("gpu_idle", "open", "warning")]
    assert "GPU 1" in RunEvent.objects.get(kind=health.ALERT).data["sentence"]


def test_a_run_goes_by_its_own_preset(attempt: Attempt, clock: Iterator[datetime]) -> None:
    own = HealthPreset.objects.create(name="mine", bounds={"kl": {"warning": 0.01, "bad": None}})
    Run.objects.filter(pk=attempt.run_id).update(preset=own)
    write(attempt, 40)
    health.tick(next(clock))
    finding = Run.objects.get(pk=attempt.run_id).health["findings"][0]
    assert (finding["level"], finding["source"]) == ("warning", "Preset “mine”.")


def test_a_round_asks_the_same_number_of_questions_for_a_long_run(
    attempt: Attempt, clock: Iterator[datetime], django_assert_max_num_queries: Any
) -> None:
    for _ in range(6):
        write(attempt, 100)
    health.tick(next(clock))
    write(attempt, 1)
    with django_assert_max_num_queries(14):
        health.tick(next(clock))


def test_a_standstill_is_told_up_to_the_supervisors_last_word(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 40)
    now = next(clock)
    health.tick(now)
    away = now + timedelta(hours=2)  # nobody listened, or nobody spoke
    health.tick(away)
    assert told(attempt) == []
    Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=away + timedelta(hours=2))
    health.tick(away + timedelta(hours=2))
    assert told(attempt) == [("stalled", "open", "bad")]


def test_a_standstill_says_who_waits_for_whom(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 40)
    health.tick(next(clock))
    step = attempt.run.__class__.objects.get().step
    waits = {"text": "No step for 90 s. The reward slow has not returned.", "who": "The reward slow has not returned."}
    RunEvent.objects.create(run=attempt.run, attempt=attempt, at=timezone.now(), kind="hang", step=step, data=waits)
    away = next(clock) + timedelta(hours=2)
    Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=away)
    health.tick(away)
    (finding,) = [each for each in Run.objects.get().health["findings"] if each["rule"] == "stalled"]
    usual, _, who = finding["sentence"].partition(" times ")[2].partition(". ")
    assert usual == "the longest step (1 min)"
    assert who == "The reward slow has not returned."


def test_the_largest_numbers_there_are_keep_no_run_from_being_judged(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    write(attempt, 40)
    for reward in (1.7e308, -1.7e308, 0.5):
        write(attempt, 30, reward=reward)
        assert health.tick(next(clock)) == 1


def test_completions_of_any_shape_are_counted_as_texts_or_left_out(attempt: Attempt, clock: Iterator[datetime]) -> None:
    write(attempt, 40)
    told: list[Any] = [7, "none", [None, {"text": None}, {"text": {"a": 1}}]]
    uploads.samples(attempt, 1, [{"step": step, "completions": each} for step, each in enumerate(told)])
    assert health.tick(next(clock)) == 1


def test_a_gradient_that_is_no_number_for_longer_than_is_read_back_stays_told(
    attempt: Attempt, clock: Iterator[datetime]
) -> None:
    write(attempt, 40, learning_rate=1e-6)
    for first in range(41, 400, 60):
        ingest.accept(attempt, [train(n, loss=0.0, learning_rate=1e-6) for n in range(first, first + 60)])
        health.tick(next(clock))
    assert told(attempt) == [("not_finite", "open", "bad")]


def test_a_round_looks_for_what_is_due_without_reading_any_run() -> None:
    now = timezone.now()
    ages = {"longest": 60, "later": 30, "just now": 2, "never": None}
    ids = {name: an_attempt(run=a_run(name, host=a_host(name))).run_id for name in ages}
    for name, age in ages.items():
        if age is not None:
            told = {"at": (now - timedelta(seconds=age)).isoformat(), "memory": {"seq": 0}}
            Run.objects.filter(pk=ids[name]).update(health=told)
    with CaptureQueriesContext(connection) as asked:
        assert health._due_runs(now) == [ids["never"], ids["longest"], ids["later"]]
    assert len(asked) == 1
    columns = asked[0]["sql"].partition(" FROM ")[0]
    assert not any(f'"runs_run"."{wide}" AS' in columns for wide in ("spec", "health", "last_metrics", "trend"))
    assert '"spec"' not in columns
