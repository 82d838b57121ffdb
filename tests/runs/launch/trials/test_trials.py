"""Trying hardware profiles: what is launched, what is refused and why, and how each candidate did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, Host
from runs.engine.models import Attempt, ProfileTrial, Run
from runs.engine.records import MetricRow
from runs.engine.scheduling import dispatching
from runs.engine.states import RunStatus, final_status
from runs.engine.transitions import move
from runs.insight.metrics import peaks
from runs.launch.trials import trials
from runs.launch.trials.results import progress
from runs.pages.run_list.query import TRIAL
from tests.controlplane.people import operator, viewer
from tests.runs.builders import CPU, FREE, a_run, a_user
from tests.runs.conftest import Sent
from tests.runs.launch.new_run.launching_page import a_config, a_ready_host, a_version
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import Placement
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

NEW = "/hardware/trials/new/"
BATCH = {"per_device_train_batch_size": 8, "num_generations": 8, "max_completion_length": 64}


@pytest.fixture(autouse=True)
def no_shipped_profiles() -> None:
    HardwareProfile.objects.all().delete()


def a_profile(name: str = "small", **columns: Any) -> HardwareProfile:
    return HardwareProfile.objects.create(name=name, **{"spec": CPU, "batch": BATCH, **columns})


def four_gpus(name: str = "large") -> HardwareProfile:
    return a_profile(name, spec={"rollout": "colocate", "trainer_gpus": 4, "processes": 4, "strategy": "ddp"})


def asked(host: Host, *profiles: HardwareProfile, **changes: Any) -> dict[str, Any]:
    return {
        "key": "page-1",
        "host": host.pk,
        "model": "/models/tiny",
        "dataset_version": a_version().pk,
        "reward_version": a_config(f"c{a_version().pk}").pk,
        "profiles": [row.pk for row in profiles],
    } | changes


def started(*profiles: HardwareProfile, host: Host | None = None, client: Client | None = None) -> ProfileTrial:
    answer = (client or operator()).post(NEW, asked(host or a_ready_host(), *profiles))
    assert answer.status_code == 302, answer.context["form"].errors
    return ProfileTrial.objects.get()


def ended(run: Run, reason: EndReason, detail: str = "", **receipt: Any) -> None:
    attempt = run.attempts.get()
    move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1})
    move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    move(attempt, final_status(reason), reason=reason, actor="test", detail=detail, facts={"receipt": FREE | receipt})


def step(run: Run, number: int, t: float = 0, kind: str = "train", **values: float) -> None:
    attempt = run.attempts.get()
    seq = MetricRow.objects.filter(run=run).count() + 1
    MetricRow.objects.create(run=run, attempt=attempt, seq=seq, t=t, kind=kind, step=number, values=values)


# --- starting ----------------------------------------------------------------------------------------------


def test_each_profile_is_tried_for_two_steps_with_what_it_was_made_for():
    lora = {"r": 8, "alpha": 16, "dropout": 0.0, "target_modules": ["q_proj"]}
    host = a_ready_host()
    trial = started(a_profile("one"), a_profile("two", lora=lora), host=host)
    assert (trial.host, trial.model, trial.refused) == (host, "/models/tiny", [])
    one, two = trial.runs.order_by("name")
    assert (one.name, one.kind, one.host) == ("one · trial", "trial", host)
    assert one.spec["grpo"] == {**BATCH, "max_steps": 2, "save_strategy": "no"}
    assert (one.spec["lora"], two.spec["lora"]["r"]) == (None, 8)


def test_a_candidate_that_is_too_large_is_not_queued_and_says_why():
    trial = started(a_profile("small"), four_gpus())
    assert [run.profile.name for run in trial.runs.all() if run.profile] == ["small"]
    [refused] = trial.refused
    assert (refused["name"], refused["fits"]) == ("large", False)
    assert refused["why"] == "Needs 4 GPUs, but box has none."


def test_a_candidate_that_preflight_stops_says_why_and_the_others_run():
    wrong = a_profile("odd", batch=BATCH | {"num_generations": 3})
    trial = started(a_profile("small"), wrong, a_profile("broken", spec={"rollout": "guess"}))
    assert trial.runs.count() == 1
    said = {entry["name"]: entry for entry in trial.refused}
    assert said["odd"]["fits"] is None
    assert "3" in said["odd"]["why"]
    assert "can't be read" in said["broken"]["why"]


def test_a_gpu_that_the_profile_names_and_the_host_lacks_is_said():
    pinned = a_profile("pinned", spec={"rollout": "transformers", "trainer_gpus": 1, "trainer_gpu_ids": [5]})
    trial = started(pinned, host=a_ready_host(gpus=2))
    assert trial.refused[0]["why"] == "Host box has no GPU 5, which this run's profile names."


def test_a_second_click_finds_the_trial_of_the_first():
    host, row, client = a_ready_host(), a_profile(), operator()
    page = asked(host, row)
    first, second = client.post(NEW, page), client.post(NEW, page)
    assert first["Location"] == second["Location"]
    assert (ProfileTrial.objects.count(), Run.objects.count()) == (1, 1)
    client.post(NEW, page | {"model": "/models/other"})
    assert ProfileTrial.objects.count() == 2


def test_trials_are_leased_and_launched_like_any_run(sent: Sent, commits: Any):
    with commits(execute=True):
        trial = started(a_profile("one"), a_profile("two"), host=a_ready_host(cpu_slots=1))
    assert len(sent.messages) == 1
    assert sorted(Attempt.objects.values_list("status", flat=True)) == ["queued", "starting"]
    assert progress(trial).live


@pytest.mark.django_db(transaction=True)
def test_candidates_are_checked_before_any_other_writer_has_to_wait() -> None:
    wanted = trials.TrialSetup(a_ready_host(), "/models/tiny", a_version(), a_config())
    user, profiles = a_user(), [a_profile("a"), a_profile("b")]
    with CaptureQueriesContext(connection) as queries:
        trials.start(wanted, profiles, user, "page")
    said = [query["sql"] for query in queries]
    begin, commit = next(n for n, sql in enumerate(said) if sql.startswith("BEGIN")), said.index("COMMIT")
    assert any("runs_lease" in sql for sql in said[:begin])
    assert not any("runs_lease" in sql for sql in said[begin:commit])


def test_the_queue_is_gone_through_once_for_all_candidates(commits: Any) -> None:
    host = a_ready_host(cpu_slots=9)
    with commits(execute=True) as done:
        trial = started(*(a_profile(f"p{n}") for n in range(4)), host=host)
    assert done.count(dispatching.dispatch_ready) == 1
    assert Attempt.objects.filter(run__trial=trial, status=RunStatus.STARTING).count() == 4
    with commits() as done:
        assert trials.stop_all(trial, a_user()) == 4
    assert dispatching.dispatch_ready not in done


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"host": ""}, "host"),
        ({"host": "x"}, "host"),
        ({"model": " "}, "model"),
        ({"model": "-x"}, "model"),
        ({"dataset_version": "999"}, "dataset_version"),
        ({"reward_version": ""}, "reward_version"),
        ({"profiles": []}, "profiles"),
        ({"profiles": ["999"]}, "profiles"),
        ({"profiles": ["x"]}, "profiles"),
    ],
)
def test_what_is_missing_or_wrong_is_said_beside_its_field(change, field):
    answer = operator().post(NEW, asked(a_ready_host(), a_profile()) | change)
    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    assert not ProfileTrial.objects.exists()


@pytest.mark.parametrize(
    ("columns", "words"),
    [({"announced_at": timezone.now() - timedelta(hours=1)}, "unreachable"), ({"draining": True}, "no new runs")],
)
def test_a_host_that_starts_nothing_is_refused(columns, words):
    answer = operator().post(NEW, asked(a_ready_host(**columns), a_profile()))
    assert answer.status_code == 422
    assert words in str(answer.context["form"].errors["host"])


# --- the form ----------------------------------------------------------------------------------------------


def test_the_form_says_what_the_host_has_for_each_profile():
    a_ready_host(gpus=2)
    a_profile("both", spec={"rollout": "server", "trainer_gpus": 1, "server": {"gpus": 1, "weight_sync": "lora"}})
    four_gpus()
    shown = operator().get(NEW).content.decode()
    assert "1 trainer GPU · vLLM server on 1 GPU, LoRA by HTTP · all weights" in shown
    assert "2 of box&#x27;s 2 GPUs" in shown
    assert "Needs 4 GPUs, but box has 2." in shown


def test_another_host_changes_the_candidates_alone():
    a_ready_host(gpus=8)
    other = a_ready_host("other")
    row = four_gpus()
    query = {"host": other.pk, "profiles": [row.pk]}
    part = operator().get(NEW, query, headers={"HX-Request": "true"}).content.decode()
    assert "Needs 4 GPUs, but other has none." in part
    assert "1 that doesn’t fit here" in part
    assert f'value="{row.pk}" disabled>' in " ".join(part.split()).replace(" >", ">")
    assert "<html" not in part


@pytest.mark.parametrize("query", ["?host=x", "?host=99999999999999999999", "?host=", "?profiles=x&model=%20"])
def test_a_link_may_say_anything(query):
    a_profile()
    assert operator().get(NEW + query).status_code == 200


def test_an_empty_installation_has_a_form_too():
    assert "There is no hardware profile yet" in operator().get(NEW).content.decode()


# --- how they did ------------------------------------------------------------------------------------------


def test_a_candidate_that_trained_fits_and_tells_its_speed():
    trial = started(a_profile())
    run = trial.runs.get()
    ended(run, EndReason.COMPLETED)
    launched = run.attempts.get().dispatched_at
    assert launched is not None
    step(run, 1, t=launched.timestamp() + 30, num_tokens=1000.0, step_time=9.0)
    step(run, 2, t=launched.timestamp() + 34, num_tokens=3000.0, step_time=4.0)
    [result] = progress(trial).results
    assert (result.fits, result.best) == ("yes", True)
    assert (result.measured.tokens_per_s, result.measured.step_s) == (500.0, 4.0)
    assert result.measured.first_step_s == pytest.approx(30, abs=0.01)
    shown = viewer().get(f"/hardware/trials/{trial.pk}/").content.decode()
    for words in ("fits", "500", "quickest", "all resources released"):
        assert words in shown


def test_a_step_that_reuses_completions_counts_both():
    trial = started(a_profile())
    run = trial.runs.get()
    step(run, 1, num_tokens=1000.0, step_time=9.0)
    step(run, 2, num_tokens=1000.0, step_time=1.0)
    assert progress(trial).results[0].measured.tokens_per_s == 100.0


def test_the_quickest_that_fits_is_marked():
    trial = started(a_profile("slow"), a_profile("quick"), a_profile("oom"))
    speeds = {"slow": 100.0, "quick": 900.0, "oom": 5000.0}
    for run in trial.runs.all():
        name = run.name.split(" ")[0]
        ended(run, EndReason.OOM if name == "oom" else EndReason.COMPLETED)
        step(run, 1, num_tokens=1.0, step_time=1.0)
        step(run, 2, num_tokens=1.0 + speeds[name], step_time=1.0)
    found = progress(trial)
    assert [(r.name, r.fits) for r in found.results if r.best] == [("quick", "yes")]
    assert (found.fitting, found.live) == (2, False)


@pytest.mark.parametrize(
    ("reason", "fits", "words"),
    [
        (EndReason.OOM, "no", "Out of memory. CUDA said so"),
        (EndReason.VLLM_EXITED, "failed", "The vLLM server exited while the run needed it. CUDA said so"),
        (EndReason.STOPPED_BY_USER, "stopped", "Stopped manually."),
    ],
)
def test_how_a_candidate_ended_is_said(reason, fits, words):
    trial = started(a_profile())
    ended(trial.runs.get(), reason, "CUDA said so")
    [result] = progress(trial).results
    assert (result.fits, result.why) == (fits, words)


def test_a_refused_candidate_is_a_row_of_its_own():
    trial = started(four_gpus())
    shown = viewer().get(f"/hardware/trials/{trial.pk}/").content.decode()
    assert "does not fit" in shown
    assert "Needs 4 GPUs, but box has none." in shown
    assert "hx-trigger" not in shown


def test_the_page_asks_until_all_have_ended():
    trial = started(a_profile())
    path = f"/hardware/trials/{trial.pk}/"
    assert 'hx-trigger="every 2s"' in viewer().get(path).content.decode()
    assert viewer().get(path, headers={"HX-Request": "true"}).status_code == 200
    ended(trial.runs.get(), EndReason.COMPLETED)
    assert viewer().get(path, headers={"HX-Request": "true"}).status_code == 286


def test_the_page_needs_a_fixed_number_of_queries(django_assert_max_num_queries):
    trial = started(*[a_profile(f"p{i}") for i in range(8)])
    client = viewer()
    with django_assert_max_num_queries(12):
        client.get(f"/hardware/trials/{trial.pk}/")


def test_all_are_stopped_by_one_click_and_a_second_does_nothing():
    client = operator()
    trial = started(a_profile("one"), a_profile("two"), client=client)
    path = f"/hardware/trials/{trial.pk}/stop"
    assert "Asked 2 candidates" in client.post(path, follow=True).content.decode()
    assert set(Attempt.objects.values_list("status", flat=True)) == {"stopped"}
    assert "have already ended" in client.post(path, follow=True).content.decode()


def test_viewers_look_and_do_nothing():
    trial = started(a_profile())
    shown = viewer().get(f"/hardware/trials/{trial.pk}/").content.decode()
    assert "Stop all" not in shown
    assert viewer().get(NEW).status_code == 403
    assert viewer().post(NEW).status_code == 403
    assert viewer().post(f"/hardware/trials/{trial.pk}/stop").status_code == 403
    assert operator().get(f"/hardware/trials/{trial.pk}/stop").status_code == 405
    assert viewer().get("/hardware/trials/999/").status_code == 404


def test_a_candidate_that_fits_leads_to_a_new_run_with_it():
    trial = started(a_profile())
    ended(trial.runs.get(), EndReason.COMPLETED)
    [result] = progress(trial).results
    shown = operator().get(f"/runs/new/?{result.use}").content.decode()
    assert 'value="/models/tiny"' in shown
    assert f'<option value="{trial.runs.get().profile_id}" selected>' in shown


def test_the_list_of_runs_has_trials_when_asked():
    a_run("real")
    started(a_profile())
    names = {kind: operator().get("/runs/", {"kind": kind}).content.decode() for kind in ("", "trial", "all", "odd")}
    assert ["small · trial" in names[kind] for kind in ("", "trial", "all", "odd")] == [False, True, True, False]
    assert [">real<" in names[kind] for kind in ("", "trial", "all")] == [True, False, True]


def test_a_trial_outlives_its_profile_host_and_rewards():
    trial = started(a_profile())
    HardwareProfile.objects.all().delete()
    Host.objects.update(removed_at=timezone.now())
    assert viewer().get(f"/hardware/trials/{trial.pk}/").status_code == 200


# --- peaks -------------------------------------------------------------------------------------------------


def test_a_servers_share_lies_apart_from_what_torch_reserved():
    hardware = HardwareSpec(
        "p", Rollout.SERVER, trainer_gpus=1, server=ServerSpec(gpu_memory_utilization=0.5, weight_sync=WeightSync.LORA)
    )
    place = Placement("box", gpus=(0,), server_gpus=(1,))
    trainer, server = peaks.of_run(
        hardware, place, measured={0: 9000, 1: 52_000}, reserved={0: 8000}, sizes={0: 100_000, 1: 100_000}
    )
    assert (trainer.trainer_mib, trainer.vllm_mib, trainer.rest_mib) == (8000, 0, 1000)
    assert (server.trainer_mib, server.vllm_mib, server.rest_mib) == (0, 50_000, 2000)


@pytest.mark.parametrize(("reserved", "trainer"), [(50_000.0, 20_000.0), (20_000.0, 20_000.0)])
def test_a_colocated_vllm_is_told_apart_whether_torch_counts_it_or_not(reserved, trainer):
    hardware = HardwareSpec("p", Rollout.COLOCATE, trainer_gpus=1, colocate_memory_utilization=0.3)
    peak = {"measured": {0: 52_000.0}, "reserved": {0: reserved}, "sizes": {0: 100_000.0}}
    [gpu] = peaks.of_run(hardware, Placement("box", gpus=(0,)), **peak)
    assert (gpu.trainer_mib, gpu.vllm_mib, gpu.rest_mib) == (trainer, 30_000, 2000)


@pytest.mark.parametrize(("reserved", "peak"), [(60_000.0, 60_000.0), (120_000.0, 52_000.0)])
def test_a_peak_that_samples_missed_is_torchs_unless_the_card_is_smaller(reserved, peak):
    hardware = HardwareSpec("p", trainer_gpus=1)
    measured = {"measured": {0: 52_000.0}, "reserved": {0: reserved}, "sizes": {0: 100_000.0}}
    [gpu] = peaks.of_run(hardware, Placement("box", gpus=(0,)), **measured)
    assert (gpu.peak_mib, gpu.trainer_mib) == (peak, peak)


def test_a_gpu_that_nobody_measured_has_no_peak():
    place = Placement("box", gpus=(0,))
    assert peaks.of_run(HardwareSpec("p", trainer_gpus=1), place, measured={}, reserved={0: 5}, sizes={}) == []


def test_peaks_come_from_samples_first_and_from_the_receipt_then():
    trial = started(a_profile(spec={"rollout": "transformers", "trainer_gpus": 1}), host=a_ready_host(gpus=1))
    Attempt.objects.update(placement={"host": "box", "gpus": [0]}, host=Host.objects.get())
    run = trial.runs.get()
    step(run, 1, kind="system", **{"gpu/0/memory_mib": 5000.0})
    step(run, 1, **{"memory/rank0/reserved_mib": 4000.0})
    assert progress(trial).results[0].peaks[0].peak_mib == 5000
    receipt = {"gpu": "0", "before_mib": 1, "peak_mib": 6000, "after_mib": 1, "seconds_to_free": 0.1}
    ended(run, EndReason.COMPLETED, gpus=[receipt])
    [peak] = progress(trial).results[0].peaks
    assert (peak.peak_mib, peak.trainer_mib, peak.memory_mib) == (6000, 4000, 143_771)


def test_the_words_for_a_trial_are_the_same_everywhere():
    assert TRIAL == trials.KIND
