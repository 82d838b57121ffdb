from __future__ import annotations

import gzip
import json
import threading

import pytest
from django.test import RequestFactory
from pytest_django import DjangoAssertNumQueries

from controlplane.platform.accounts.models import Role
from runs.engine import queries
from runs.engine.models import Attempt, Run
from runs.engine.records import ChunkOutline, MetricChunk, MetricRow
from runs.engine.scheduling import gpu_queue
from runs.engine.states import RunStatus
from runs.insight.metrics import folding
from runs.insight.metrics.series import STRETCHES, Points, Series, Window, metrics, outline, thin
from runs.insight.metrics.series import series as series_of
from runs.intake.host_api import ingest
from tests.controlplane.people import signed_in
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from workers.contract.reports.lines import OutboxLine

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
    before = series_of(run, ["reward", "loss"], 10_000)
    folding.fold_all()
    ingest.accept(attempt, wave(2501, 1500))
    assert folding.fold_all() == 2
    run.refresh_from_db()
    after = series_of(run, ["reward", "loss"], 10_000)
    assert after["series"]["reward"]["value"][:2500] == before["series"]["reward"]["value"]
    assert after["series"]["loss"]["seq"] == list(range(1, 4001))
    assert after["last"] == run.folded_seq == 4000
    points = MetricChunk.objects.filter(metric="reward").values_list("points", flat=True)
    assert list(points) == [1000, 1000, 1000, 1000]


def test_points_at_an_odd_address_are_thinned() -> None:
    points = Points.unpack(Points.of([(n, n, n, float(n)) for n in range(1001)]).pack(), 1001)
    assert not points.value.flags.aligned
    assert len(thin(points, 100)) <= 100


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
    shown = series_of(run, ["reward"], 200)["series"]["reward"]
    assert len(shown["value"]) <= 200
    assert {1e6, -1e6, 2e6} <= set(shown["value"])


def test_a_metric_that_comes_rarely_fills_its_own_chunks() -> None:
    attempt = an_attempt()
    lines = [train(seq, reward=1.0, **({"eval_reward": 2.0} if seq % 100 == 0 else {})) for seq in range(1, 3001)]
    ingest.accept(attempt, lines)
    folding.fold_all()
    shown = series_of(Run.objects.get(), ["eval_reward", "never"])["series"]
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
    shown = series_of(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]
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
    shown = series_of(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]
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
    assert series_of(Run.objects.get(), ["reward"], 10_000)["series"]["reward"]["seq"] == list(range(1, 3001))


# --- a window of the x axis, in detail ---------------------------------------------------------------------------


def shown(run: Run, window: Window, metric: str = "reward", points: int = 500) -> Series:
    return series_of(run, [metric], points, window)["series"][metric]


def test_a_window_of_steps_has_each_point_in_it_and_one_neighbour_on_each_side() -> None:
    run = folded(an_attempt(), 4000)
    assert shown(run, Window("step", 1990, 2010))["step"] == list(range(1989, 2012))
    assert shown(run, Window(low=3990))["step"] == list(range(3989, 4001))
    assert shown(run, Window(high=3))["step"] == [1, 2, 3, 4]
    assert shown(run, Window(low=9000, high=9100))["step"] == [4000]


def test_a_window_of_time_reaches_into_what_is_not_folded_yet() -> None:
    attempt = an_attempt()
    folded(attempt, 2000)
    ingest.accept(attempt, wave(2001, 50))
    # t is 1000 + seq
    assert shown(Run.objects.get(), Window("time", 2995, 3005))["seq"] == list(range(1994, 2007))


def test_a_wide_window_is_thinned_and_keeps_its_spikes() -> None:
    run = folded(an_attempt(), 8000, s4321=1e6)
    wide = shown(run, Window("step", 1000, 7000), points=100)
    assert len(wide["value"]) <= 100
    assert 1e6 in wide["value"]


def test_points_of_the_machine_have_a_place_among_steps_and_tokens() -> None:
    attempt = an_attempt()
    lines = [train(2 * n - 1, step=n, num_tokens=100 * n) for n in range(1, 21)]
    lines += [OutboxLine(2 * n, 1000.0 + n, "system", None, {"gpu/0/util_percent": n}) for n in range(1, 20)]
    ingest.accept(attempt, lines)
    run = Run.objects.get()
    by_tokens = shown(run, Window("tokens", 500, 700), "gpu/0/util_percent")
    assert by_tokens["tokens"] == [450.0, 550.0, 650.0, 750.0]
    by_step = shown(run, Window("step", 5, 6), "gpu/0/util_percent")
    assert by_step["step"] == [4, 5, 6, 7]
    assert shown(run, Window(), "gpu/0/util_percent")["step"] == [None] * 19


def test_a_run_without_a_token_count_has_a_chart_by_tokens_all_the_same() -> None:
    assert set(shown(folded(an_attempt(), 50), Window("tokens"))["tokens"]) == {0.0}


def test_a_chunk_without_an_outline_is_read_itself() -> None:
    run = folded(an_attempt(), 4000)
    ChunkOutline.objects.filter(chunk__metric="reward", chunk__first_seq=1001).delete()
    assert shown(run, Window(), points=10_000)["step"] == list(range(1, 4001))
    assert shown(run, Window("step", 1500, 1502))["step"] == [1499, 1500, 1501, 1502, 1503]


def test_every_one_step_spike_of_a_long_run_is_drawn_after_a_resume_too() -> None:
    run = a_run(host=a_host())
    first = an_attempt(RunStatus.RUNNING, run=run)
    spikes = {500 * n + 137 for n in range(20)}
    lines = [train(seq, reward=9.0 if seq in spikes else (seq % 7) / 10) for seq in range(1, 12_001)]
    for start in range(0, len(lines), 3000):
        ingest.accept(first, lines[start : start + 3000])
    folding.fold_all()
    second = Attempt.objects.create(
        id=f"{run.pk}-2", run=run, number=2, status="failed", first_seq=12_001, last_seq=12_000
    )
    resumed = [event(12_001, "training", max_steps=20_000, step=10_500)]
    ingest.accept(second, [*resumed, *(train(12_001 + n, step=10_500 + n, reward=0.1) for n in range(1, 1500))])
    folding.fold_all()
    drawn = shown(Run.objects.get(), Window(), points=300)
    assert {s for s, v in zip(drawn["step"], drawn["value"], strict=True) if v == 9.0} == spikes
    assert drawn["step"] == sorted(set(drawn["step"]))
    assert MetricChunk.objects.filter(outline=None).count() == 0


def test_spikes_that_are_neighbours_are_drawn_both() -> None:
    points = Points.of([(n, n, 0.0, 5.0 + n / 1e6 if n in (50_001, 50_009) else (n % 13) / 13) for n in range(100_000)])
    drawn = thin(points, 500)
    assert len(drawn) <= 500
    assert {50_001, 50_009, 0, 99_999} <= set(drawn.seq.tolist())
    assert (drawn.seq[1:] > drawn.seq[:-1]).all()
    assert all(len(thin(points, count)) <= max(3, count) for count in (2, 7, 8, 40, 99_999))


def test_rows_packed_one_behind_the_other_are_the_points_one_behind_the_other() -> None:
    parts = [Points.of([(n, None, n / 7, -n / 3)]) for n in range(5)]
    whole = Points.unpack_rows([part.pack_rows() for part in parts])
    assert (whole.seq.tolist(), whole.step.tolist()) == ([0, 1, 2, 3, 4], [-1] * 5)
    assert whole.value.tolist() == [-n / 3 for n in range(5)]
    assert len(Points.unpack_rows([])) == 0


def test_the_outline_of_a_chunk_has_the_extremes_of_every_stretch_and_its_ends() -> None:
    points = Points.of([(n, n, 0.0, float((n * 37) % 101)) for n in range(1, 1000)])
    drawn = outline(points)
    assert len(drawn) <= 2 * STRETCHES + 2
    assert (drawn.seq[0], drawn.seq[-1]) == (1, 999)
    for start in range(0, 999, 32):
        stretch = points.value[start : start + 32]
        assert {stretch.min(), stretch.max()} <= set(drawn.value)


# --- what there is -----------------------------------------------------------------------------------------------


def test_the_metrics_of_a_run_are_counted_over_chunks_and_tail() -> None:
    attempt = an_attempt()
    folded(attempt, 1500)
    ingest.accept(attempt, [OutboxLine(1501, 9000.0, "system", None, {"gpu/0/memory_mib": 5.0})])
    assert metrics(Run.objects.get()) == [
        {"name": "gpu/0/memory_mib", "kind": "system", "points": 1},
        {"name": "loss", "kind": "train", "points": 1500},
        {"name": "reward", "kind": "train", "points": 1500},
    ]


def test_the_pages_of_numbers_answer_for_all_metrics_a_window_and_nonsense() -> None:
    run = folded(an_attempt(), 1500)
    client = signed_in(Role.VIEWER)
    at = f"/runs/{run.pk}/series.json"
    assert set(client.get(at, {"metrics": "*"}).json()["series"]) == {"reward", "loss"}
    part = client.get(at, {"metrics": "reward", "x": "step", "from": "10", "to": "11.5"}).json()
    assert part["series"]["reward"]["step"] == [9, 10, 11, 12]
    assert client.get(at, {"metrics": "reward,loss%2C%25,"}).json()["series"].keys() == {"reward", "loss,%"}
    assert client.get(at, {"x": "colour", "from": "nan", "to": "inf"}).status_code == 200
    packed = client.get(at, {"metrics": "reward"}, headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.content))["last"] == 1500
    assert [m["points"] for m in client.get(f"/runs/{run.pk}/metrics.json").json()["metrics"]] == [1500, 1500]


# --- query counts of the hot reads -----------------------------------------------------------------------------


def test_a_series_takes_four_queries_for_any_number_of_metrics(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    run = folded(an_attempt(), 2000)
    with django_assert_num_queries(4):
        series_of(run, ["reward", "loss", "kl"])
    with django_assert_num_queries(4):
        series_of(run, ["reward", "loss", "kl"], 500, Window("tokens", 100, 300))


def test_the_list_takes_two_queries_for_any_number_of_runs(
    rf: RequestFactory, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for n in range(5):
        a_run(f"run {n}")
    places = gpu_queue.positions()
    with django_assert_num_queries(2):
        assert len([queries.summary(run, positions=places) for run in queries.runs_for(rf.get("/"))]) == 5


def test_a_summary_has_an_estimate_while_the_run_lives() -> None:
    attempt = an_attempt(RunStatus.STARTING)
    ingest.accept(attempt, [event(1, "training", max_steps=20, step=0), train(2, step=5, reward=0.5, step_time=2.0)])
    said = queries.summary(queries.with_attempts(Run.objects.all()).get())
    assert (said["status"], said["step"], said["eta_s"], said["reward"]) == ("running", 5, 30.0, 0.5)
    assert said["sentence"] == "Training."
