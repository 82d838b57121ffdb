"""The pages of runs at HTTP level: what they show, to whom, and by which method."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from controlplane.platform.accounts.models import User
from runs.engine import queries
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import LogChunk, RunEvent, SampleRow
from runs.engine.scheduling.stopping import request_stop
from runs.engine.states import RunStatus
from runs.intake.host_api.ingest import accept
from runs.pages.run_page import header
from tests.controlplane.people import operator, signed_in, viewer
from tests.runs.builders import FREE, a_host, a_run, an_attempt, event, train
from workers.contract.wire.names import SAVING, StopMode

pytestmark = pytest.mark.django_db
PARTS = ["", "head/", "series.json", "completions/", "logs/", "logs/trainer", "events/", "checkpoints/", "spec/"]


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def text(client: Client, path: str, **query: Any) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


def a_sample(attempt: Attempt, step: int, **more: Any) -> None:
    completion = {"text": "<b>4</b>", "tokens": 3, "ended": True, "rewards": {"format": 1.0}, "reward": 1.0}
    data = {"row": 7, "prompt": "2 + 2?", "answer": "4", "completions": [{**completion, "advantage": 0.5}], **more}
    line = attempt.run.samples.count() + 1
    SampleRow.objects.create(run=attempt.run, attempt=attempt, line=line, step=step, data=data)


def test_every_part_of_a_run_is_shown_to_a_viewer(subtests: pytest.Subtests) -> None:
    for part in PARTS:
        with subtests.test(part=part):
            run = an_attempt().run
            assert viewer().get(f"/runs/{run.pk}/{part}").status_code == 200


def test_the_page_knows_when_each_attempt_began_to_train() -> None:
    attempt = an_attempt()
    accept(attempt, [event(1, "training", max_steps=9, step=0), train(2)])
    assert viewer().get(f"/runs/{attempt.run_id}/").context["page"]["starts"] == [1001.0]


def test_no_part_of_a_run_is_shown_to_a_stranger(subtests: pytest.Subtests) -> None:
    for part in PARTS:
        with subtests.test(part=part):
            run = an_attempt().run
            answer = Client().get(f"/runs/{run.pk}/{part}")
            assert answer.status_code == 302
            assert answer["Location"].startswith("/sign-in/")


def test_parts_of_a_run_are_read_only(subtests: pytest.Subtests) -> None:
    for part in PARTS:
        with subtests.test(part=part):
            run = an_attempt().run
            assert operator().post(f"/runs/{run.pk}/{part}").status_code == 405


def test_a_run_that_is_not_there_is_not_found(subtests: pytest.Subtests) -> None:
    for part in PARTS:
        with subtests.test(part=part):
            assert viewer().get(f"/runs/rnowhere/{part}").status_code == 404


def test_the_start_page_is_the_list_of_runs() -> None:
    a_run("first")
    assert viewer().get("/")["Location"] == "/runs/"


def test_the_empty_list_offers_the_first_step_to_those_who_may_take_it() -> None:
    assert 'primary" href="/start/">First steps' in text(operator(), "/runs/")
    assert "First steps" not in text(viewer(), "/runs/")


def test_the_list_shows_each_run_with_its_status_and_reward() -> None:
    attempt = an_attempt()
    accept(attempt, [train(1, reward=0.25), train(2, reward=0.75)])
    page = text(viewer(), "/runs/")
    assert "first" in page
    assert "running" in page
    assert "0.750" in page
    assert "<polyline" in page


def test_an_htmx_request_gets_the_rows_alone() -> None:
    a_run()
    answer = viewer().get("/runs/", headers={"HX-Request": "true"})
    assert b"first" in answer.content
    assert b"<html" not in answer.content


def test_the_list_is_searched_by_name_and_status() -> None:
    a_run("apple")
    an_attempt(RunStatus.FAILED, run=a_run("banana"))
    assert "banana" not in text(viewer(), "/runs/", q="app")
    assert "apple" not in text(viewer(), "/runs/", status="failed")
    assert "No run matches" in text(viewer(), "/runs/", q="cherry")


def test_a_resumed_runs_time_is_that_of_all_its_attempts() -> None:
    run, begun = a_run(), timezone.now() - timedelta(hours=1)
    run.attempts.all().delete()
    for number, seconds in ((1, 586), (2, 95)):
        times = {"started_at": begun, "ended_at": begun + timedelta(seconds=seconds)}
        status, step = RunStatus.SUCCEEDED, 50 * (number - 1)
        run.attempts.create(id=f"{run.pk}-{number}", number=number, status=status, resume_step=step, **times)
    page = " ".join(viewer().get(f"/runs/{run.pk}/").content.decode().split())
    assert "trained for 11 min 21 s in 2 attempts" in page
    assert "Attempt 1: 9 min 46 s; attempt 2, from step 50: 1 min 35 s" in page


def test_an_earlier_attempts_status_is_not_the_runs() -> None:
    run = a_run("twice")
    an_attempt(RunStatus.FAILED, run=run)
    Attempt.objects.create(id=f"{run.pk}-2", run=run, number=2, status=RunStatus.SUCCEEDED, reason="completed")
    assert "twice" not in text(viewer(), "/runs/", status="failed")
    assert "twice" in text(viewer(), "/runs/", status="succeeded")


def test_a_name_is_shown_as_text_wherever_it_appears() -> None:
    run = an_attempt(run=a_run("<script>alert(1)</script>")).run
    for path in ("/runs/", f"/runs/{run.pk}/", f"/runs/{run.pk}/spec/", f"/runs/{run.pk}/head/"):
        assert "<script>alert" not in text(operator(), path)


def test_the_series_say_where_the_socket_goes_on() -> None:
    attempt = an_attempt()
    accept(attempt, [train(1, reward=0.25), train(2, reward=0.75)])
    answer = viewer().get(f"/runs/{attempt.run_id}/series.json", {"metrics": "reward"}).json()
    assert answer["last"] == 2
    assert answer["series"]["reward"]["value"] == [0.25, 0.75]


def test_the_series_without_a_choice_are_those_of_the_runs_own_charts() -> None:
    answer = viewer().get(f"/runs/{an_attempt().run_id}/series.json").json()
    assert {"reward", "rewards/format/mean", "eval_reward", "num_tokens"} <= set(answer["series"])
    assert "kl" not in answer["series"]


def test_odd_query_strings_are_read_as_not_said() -> None:
    run = an_attempt().run
    assert viewer().get(f"/runs/{run.pk}/series.json", {"points": "many"}).status_code == 200
    assert viewer().get(f"/runs/{run.pk}/completions/", {"step": "-7e9"}).status_code == 200
    assert viewer().get(f"/runs/{run.pk}/logs/trainer", {"offset": "x", "limit": "0"}).status_code == 200
    assert viewer().get(f"/runs/{run.pk}/", {"tab": "../../etc"}).status_code == 200


def test_completions_show_the_newest_step_and_text_as_text() -> None:
    attempt = an_attempt()
    a_sample(attempt, 3)
    a_sample(attempt, 4, prompt="<i>newest</i>")
    page = text(viewer(), f"/runs/{attempt.run_id}/completions/")
    assert "&lt;i&gt;newest" in page
    assert "&lt;b&gt;4&lt;/b&gt;" in page
    assert "2 + 2?" not in page


def test_completions_of_an_earlier_step_are_there_for_the_asking() -> None:
    attempt = an_attempt()
    a_sample(attempt, 3)
    a_sample(attempt, 4, prompt="later")
    assert "2 + 2?" in text(viewer(), f"/runs/{attempt.run_id}/completions/", step=3)


def test_a_log_is_plain_text_read_from_an_offset() -> None:
    attempt = an_attempt()
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=b"<html>0123456789")
    answer = viewer().get(f"/runs/{attempt.run_id}/logs/trainer", {"offset": -4})
    assert answer.content == b"6789"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert (answer["X-Offset"], answer["X-Size"]) == ("12", "16")


def test_a_steps_figures_are_no_trouble_though_a_name_of_theirs_says_failed() -> None:
    attempt = an_attempt()
    data = b"{'loss': '0', 'rewards/right/failed': '0'}\n\nThe reward right failed on 4 of 4.\nall well\n"
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=data)
    assert [bool(css) for _, css in header.last_lines(attempt, "trainer")] == [False, True, False]


def test_a_log_is_downloaded_whole_under_the_attempts_name() -> None:
    attempt = an_attempt()
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=b"all of it")
    answer = viewer().get(f"/runs/{attempt.run_id}/logs/trainer?download")
    assert answer["Content-Disposition"] == f'attachment; filename="{attempt.pk}-trainer.log"'
    assert answer.getvalue() == b"all of it"
    assert answer["Content-Length"] == "9"


def test_a_log_is_read_block_by_block_up_to_what_was_there() -> None:
    attempt = an_attempt()
    for offset, data in ((0, b"0123456"), (7, b"789"), (10, b"later")):
        LogChunk.objects.create(attempt=attempt, name="trainer", offset=offset, data=data)
    assert list(queries.log_blocks(attempt, "trainer", 10, block=4)) == [b"0123", b"4567", b"89"]


@pytest.mark.django_db(transaction=True)
async def test_the_web_sends_a_downloaded_log_as_it_is_taken(settings: Settings) -> None:
    settings.REDIS_URL = ""
    attempt, client = await sync_to_async(an_attempt)(), AsyncClient()
    await LogChunk.objects.acreate(attempt=attempt, name="trainer", offset=0, data=b"x" * 3_000_000)
    await client.aforce_login(await User.objects.acreate(username="vera"))
    answer = await client.get(f"/runs/{attempt.run_id}/logs/trainer?download")
    assert answer.is_async
    assert [len(block) async for block in answer.streaming_content] == [2**20, 2**20, 3_000_000 - 2**21]
    await sync_to_async(connections.close_all)()  # of the one thread for Django's sync code, which outlives the test


def test_only_known_logs_can_be_asked_for() -> None:
    run = an_attempt().run
    assert viewer().get(f"/runs/{run.pk}/logs/passwd").status_code == 404


def test_a_failed_run_says_first_why_with_the_end_of_its_log() -> None:
    attempt = an_attempt(RunStatus.FAILED)
    Attempt.objects.filter(pk=attempt.pk).update(detail="4.6 GiB were asked for.")
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=b"step 1\nOutOfMemoryError: <gpu>\n")
    page = text(viewer(), f"/runs/{attempt.run_id}/")
    assert "Out of memory." in page
    assert "4.6 GiB were asked for." in page
    assert "OutOfMemoryError: &lt;gpu&gt;" in page


def test_the_receipt_says_that_everything_is_free_or_what_is_not() -> None:
    attempt = an_attempt(RunStatus.STOPPED)
    Attempt.objects.filter(pk=attempt.pk).update(receipt=FREE)
    assert "All processes ended; all resources released." in text(viewer(), f"/runs/{attempt.run_id}/")
    Attempt.objects.filter(pk=attempt.pk).update(receipt={**FREE, "free": False, "survivors": [4711]})
    page = text(viewer(), f"/runs/{attempt.run_id}/")
    assert "Couldn’t confirm that everything was released." in page
    assert "pid 4711" in page


def test_a_quarantined_gpu_is_named() -> None:
    attempt = an_attempt(RunStatus.STOPPED)
    host = a_host("farm", gpus=1)
    lease = Lease.objects.create(attempt=attempt, host=host, resource="gpu:0", state=Lease.QUARANTINED)
    release = f'href="{reverse("release_lease", args=[lease.pk])}"'
    page = text(viewer(), f"/runs/{attempt.run_id}/")
    assert "GPU 0 of farm is in quarantine." in page
    assert "nvidia-smi" in page
    assert release not in page
    assert release in text(operator(), f"/runs/{attempt.run_id}/")


def test_a_queued_run_says_what_it_waits_for() -> None:
    run = a_run()
    run.attempts.update(waits_for="waits for GPU 2 (held by big-one)")
    assert "Waits for GPU 2 (held by big-one)." in text(viewer(), f"/runs/{run.pk}/")


def test_the_stop_says_what_will_be_lost() -> None:
    attempt = an_attempt()
    accept(attempt, [train(1), event(2, "checkpoint", step=1, path="checkpoints/checkpoint-1"), train(3), train(4)])
    page = text(operator(), f"/runs/{attempt.run_id}/")
    assert "The last checkpoint is from step 1, so 3 steps of training are lost." in page
    assert "saves a checkpoint" in page


def test_the_time_left_goes_by_the_mean_of_the_last_steps() -> None:
    attempt = an_attempt()
    Run.objects.filter(pk=attempt.run_id).update(max_steps=102)
    accept(attempt, [train(1, step_time=30.0), train(2, step_time=2.0)])
    page = text(viewer(), f"/runs/{attempt.run_id}/")
    assert "16 s/step" in page
    assert "about 27 min left" in page


def test_a_viewer_is_offered_no_stop() -> None:
    page = text(viewer(), f"/runs/{an_attempt().run_id}/")
    assert "Stop now" not in page
    assert "Save and stop" not in page


@pytest.mark.parametrize("mode", ["save", "now"])
def test_an_operator_stops_a_run(mode: str) -> None:
    attempt = an_attempt()
    answer = operator().post(f"/runs/{attempt.run_id}/stop", {"mode": mode})
    assert answer["Location"] == f"/runs/{attempt.run_id}/"
    attempt.refresh_from_db()
    assert attempt.stop_mode == mode


def test_a_viewer_stops_nothing() -> None:
    attempt = an_attempt()
    assert viewer().post(f"/runs/{attempt.run_id}/stop", {"mode": "now"}).status_code == 403
    assert viewer().post("/runs/stop", {"mode": "now", "run": attempt.run_id}).status_code == 403
    assert viewer().post(f"/runs/{attempt.run_id}/resume").status_code == 403
    attempt.refresh_from_db()
    assert attempt.stop_mode == ""


def test_a_stop_needs_a_mode_a_token_and_a_post() -> None:
    path = f"/runs/{an_attempt().run_id}/stop"
    assert operator().post(path, {"mode": "gently"}).status_code == 400
    assert operator().get(path).status_code == 405
    assert signed_in("operator", csrf=True).post(path, {"mode": "now"}).status_code == 403
    assert not RunEvent.objects.filter(kind="requested").exists()


def test_several_runs_are_stopped_at_once_and_ended_ones_left_alone() -> None:
    going, waiting, over = an_attempt(), a_run("two").latest(), an_attempt(RunStatus.FAILED, run=a_run("three"))
    chosen = [going.run_id, waiting.run_id, over.run_id]
    page = operator().post("/runs/stop", {"mode": "save", "run": chosen}, follow=True)
    said = "Asked 1 run to save and stop. Removed 1 run from the queue. 1 run had already ended."
    assert said in page.content.decode()
    modes = Attempt.objects.order_by("run__created_at").values_list("stop_mode", flat=True)
    assert list(modes) == ["save", "save", ""]


def test_a_second_stop_of_several_says_that_they_were_asked() -> None:
    chosen = {"mode": "save", "run": [an_attempt().run_id]}
    operator().post("/runs/stop", chosen)
    page = operator().post("/runs/stop", chosen, follow=True).content.decode()
    assert "Nothing was stopped. 1 run had already been asked." in page
    assert RunEvent.objects.filter(kind="requested").count() == 1


def test_a_stop_that_somebody_asked_for_before_is_said_and_not_asked_again() -> None:
    attempt = an_attempt()
    path = f"/runs/{attempt.run_id}/stop"
    first = operator()
    first.post(path, {"mode": "now"})
    page = operator().post(path, {"mode": "save"}, follow=True).content.decode()
    assert "first has already been asked to stop now by operator" in page
    again = first.post(path, {"mode": "now"}, follow=True).content.decode()
    assert "already" not in again  # a double click
    assert RunEvent.objects.filter(kind="requested").count() == 1


def test_while_it_saves_the_stop_now_is_offered_instead_and_afterwards_none() -> None:
    attempt = an_attempt()
    path = f"/runs/{attempt.run_id}/"
    operator().post(f"{path}stop", {"mode": "save"})
    asked = text(operator(), path)
    assert "Stop now instead" in asked
    assert "Save and stop" not in asked
    accept(attempt, [event(1, "phase", phase="stopping", detail=SAVING)])
    assert "The trainer is saving a checkpoint. It has two minutes for this." in text(operator(), path)
    accept(
        attempt, [event(2, "phase", phase="stopping", detail="stopped_by_user"), event(3, "phase", phase="verifying")]
    )
    verifying = text(operator(), path)
    assert "Checking that no process of the run is left." in verifying
    assert "Stop now" not in verifying


def test_a_run_out_of_reach_says_since_when_and_what_a_stop_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = timezone.now() - timedelta(minutes=3)
    monkeypatch.setattr(queries, "STARTED_AT", silent)
    attempt = an_attempt()
    Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=silent)
    seen = queries.fingerprints()
    page = text(operator(), f"/runs/{attempt.run_id}/")
    assert f'Unreachable since <time datetime="{silent.isoformat()}">' in page
    assert "The host is unreachable: the run stops when the host reconnects" in page
    assert "unreachable for" in text(operator(), "/runs/")
    request_stop(attempt, StopMode.NOW, attempt.run.owner)
    assert "the run stops when the host reconnects" in text(viewer(), f"/runs/{attempt.run_id}/")
    Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=timezone.now(), stop_mode="")
    assert queries.fingerprints() != seen  # the list is told, though no line has come
    assert "nreachable" not in text(operator(), f"/runs/{attempt.run_id}/") + text(operator(), "/runs/")


def test_pages_allow_no_script_but_our_own() -> None:
    policy = viewer().get("/runs/")["Content-Security-Policy"]
    assert "script-src 'self';" in policy + ";"
