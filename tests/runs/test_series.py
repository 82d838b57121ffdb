from __future__ import annotations

import threading

import pytest
from django.test import RequestFactory
from pytest_django import DjangoAssertNumQueries

from runs import folding, ingest, queries, queueing
from runs.models import Attempt, MetricChunk, MetricRow, Run
from runs.states import RunStatus
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from workers.contract import OutboxLine

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def wave(first: int, count: int) -> list[OutboxLine]:
    return [train(seq, reward=seq / 10, loss=-seq) for seq in range(first, first + count)]


def folded(attempt: Attempt, count: int, **spikes: float) -> Run:
    lines = wave(1, count)
    for seq, value in spikes.items():
        lines[int(seq[1:]) - 1] = train(int(seq[1:]), reward=value)
    ingest.accept(attempt, lines)
    folding.fold_all()
    return Run.objects.get(pk=attempt.run_id)


def test_folding_moves_rows_into_chunks_and_changes_no_series() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, wave(1, 2500))
    run = Run.objects.get()
    before = queries.series(run, ["reward", "loss"], 10_000)
    folding.fold_all()
    ingest.accept(attempt, wave(2501, 1500))
    assert folding.fold_all() == 2
    run.refresh_from_db()
    after = queries.series(run, ["reward", "loss"], 10_000)
    assert after["series"]["reward"]["value"][:2500] == before["series"]["reward"]["value"]
    assert after["series"]["loss"]["seq"] == list(range(1, 4001))
    assert after["last"] == run.folded_seq == 4000
    points = MetricChunk.objects.filter(metric="reward").values_list("points", flat=True)
    assert list(points) == [1000, 1000, 1000, 1000]


def test_a_fold_waits_for_enough_rows() -> None:
    ingest.accept(an_attempt(), wave(1, folding.FOLD_ROWS - 1))
    assert folding.fold_all() == 0


def test_the_newest_raw_rows_stay_for_the_cursors() -> None:
    run = folded(an_attempt(), 6000)
    kept = MetricRow.objects.order_by("seq").values_list("seq", flat=True)
    assert list(kept) == list(range(run.last_seq - folding.KEEP_ROWS + 1, run.last_seq + 1))


def test_a_one_step_spike_survives_thinning_wherever_it_is() -> None:
    spikes = {"s137": 1e6, "s2500": -1e6, "s3999": 2e6}
    run = folded(an_attempt(), 4000, **spikes)
    shown = queries.series(run, ["reward"], 200)["series"]["reward"]
    assert len(shown["value"]) <= 200
    assert {1e6, -1e6, 2e6} <= set(shown["value"])


def test_a_metric_that_comes_rarely_fills_its_own_chunks() -> None:
    attempt = an_attempt()
    lines = [train(seq, reward=1.0, **({"eval_reward": 2.0} if seq % 100 == 0 else {})) for seq in range(1, 3001)]
    ingest.accept(attempt, lines)
    folding.fold_all()
    shown = queries.series(Run.objects.get(), ["eval_reward", "never"])["series"]
    assert shown["eval_reward"]["step"] == list(range(100, 3001, 100))
    assert shown["never"] == {"seq": [], "step": [], "t": [], "value": []}
    assert MetricChunk.objects.filter(metric="eval_reward").count() == 1


def test_only_events_between_still_move_the_marker() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [event(seq, "note", text="") for seq in range(1, 1002)])
    assert folding.fold_all() == 1
    assert Run.objects.get().folded_seq == 1001


@pytest.mark.parametrize("fold_first", [True, False])
def test_a_resume_cuts_what_it_made_void_out_of_the_series(fold_first: bool) -> None:
    host = a_host()
    run = a_run(host=host)
    first = an_attempt(RunStatus.RUNNING, run=run)
    ingest.accept(first, wave(1, 2000))
    if fold_first:
        folding.fold_all()
    second = Attempt.objects.create(
        id=f"{run.pk}-2", run=run, number=2, host=host, status="failed", first_seq=2001, last_seq=2000
    )
    lines = [event(2001, "training", max_steps=3000, step=1500), train(2002, step=1501, reward=7.0)]
    ingest.accept(second, lines)
    folding.fold(run.pk, at_least=1)
    shown = queries.series(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]
    assert shown["step"] == list(range(1, 1502))
    assert shown["value"][-1] == 7.0


def test_lines_that_come_late_are_drawn_in_their_place() -> None:
    run = a_run(host=a_host())
    first = an_attempt(RunStatus.RUNNING, run=run)
    ingest.accept(first, wave(1, 10))
    second = Attempt.objects.create(
        id=f"{run.pk}-2", run=run, number=2, status="failed", first_seq=100, last_seq=99, resume_step=50
    )
    ingest.accept(second, wave(100, 1500))
    folding.fold_all()
    ingest.accept(first, wave(11, 5))
    shown = queries.series(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]
    assert shown["seq"] == [*range(1, 16), *range(100, 1600)]


@pytest.mark.django_db(transaction=True)
def test_two_folders_at_once_fold_each_row_once() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, wave(1, 3000))
    together = threading.Barrier(3)

    def fold() -> None:
        from django.db import connection

        together.wait()
        folding.fold_all()
        connection.close()

    threads = [threading.Thread(target=fold) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queries.series(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]["seq"] == list(range(1, 3001))


# --- query counts of the hot reads -----------------------------------------------------------------------------


def test_a_series_takes_three_queries_for_any_number_of_metrics(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    run = folded(an_attempt(), 2000)
    with django_assert_num_queries(3):
        queries.series(run, ["reward", "loss", "kl"])


def test_the_list_takes_two_queries_for_any_number_of_runs(
    rf: RequestFactory, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for n in range(5):
        a_run(f"run {n}")
    places = queueing.places()
    with django_assert_num_queries(2):
        assert len([queries.summary(run, places=places) for run in queries.runs_for(rf.get("/"))]) == 5


def test_a_summary_has_an_estimate_while_the_run_lives() -> None:
    attempt = an_attempt(RunStatus.STARTING)
    ingest.accept(attempt, [event(1, "training", max_steps=20, step=0), train(2, step=5, reward=0.5, step_time=2.0)])
    said = queries.summary(queries.with_attempts(Run.objects.all()).get())
    assert (said["status"], said["step"], said["eta_s"], said["reward"]) == ("running", 5, 30.0, 0.5)
    assert said["sentence"] == "Training."
