"""The Time block of the Preflight panel: what earlier runs and the rule of thumb say, in a fixed number of queries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, Host, ModelInspection
from runs.engine.machines.models import MachineSource
from runs.engine.models import Attempt, Run
from runs.intake.host_api import ingest
from tests.controlplane.people import operator
from tests.runs.api.clients import Program
from tests.runs.builders import CPU, a_run, an_attempt, rewards_named, train
from tests.runs.launch.new_run.launching_page import a_ready_host, a_version, cpu_profile, sent

pytestmark = pytest.mark.django_db

COLOCATE = {"rollout": "colocate", "trainer_gpus": 1, "processes": 1}
BATCH = {"per_device_train_batch_size": 8, "num_generations": 8, "max_completion_length": 400}
ANSWER = {"ok": True, "parameters": 1_543_714_304, "heads": 12, "chat_template": True}


def panel(client: Client | None = None, **changes: Any) -> str:
    answer = (client or operator()).post("/runs/new/check", sent(**{**BATCH, "max_steps": 1000, **changes}))
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def ran(name: str, host: Host, hardware: dict[str, Any] = CPU, *, model: str = "/models/tiny") -> Run:
    grpo = {"max_steps": 20, "gradient_accumulation_steps": 1, **BATCH}
    attempt = an_attempt(run=a_run(name, host=host, hardware=hardware, model=model, grpo=grpo))
    Attempt.objects.filter(pk=attempt.pk).update(host=host, started_at=timezone.now())
    attempt.refresh_from_db()
    ingest.accept(attempt, [train(n, step_time=2.0 if n > 1 else 60.0, num_tokens=4000.0 * n) for n in range(1, 7)])
    return Run.objects.get(pk=attempt.run_id)


def a_gpu_profile() -> HardwareProfile:
    return HardwareProfile.objects.create(name="colocated", spec=COLOCATE)


def inspected(host: Host, model: str = "/models/tiny") -> None:
    ModelInspection.objects.create(host=host, model=model, answer=ANSWER, answered_at=timezone.now())


def test_the_time_comes_from_what_the_host_did_before() -> None:
    run = ran("earlier", a_ready_host())
    text = panel(gradient_accumulation_steps=1)
    assert "based on a run on box" in text
    assert f'Based on <a href="/runs/{run.pk}/">earlier</a>' in text
    assert "about 2 s, 4k tokens" in text
    assert "about 33 min 20 s for 1,000 steps" in text
    assert "2k tokens/s, 2 s a step (median of 5 steps)." in text
    assert "GPU-hours" not in text


def test_several_runs_are_told_with_their_time_in_all() -> None:
    ran("earlier", a_ready_host())
    bounded = panel(gradient_accumulation_steps=1, seeds=3, at_once=2)
    assert "<dt>Each run</dt><dd>about 33 min 20 s" in bounded
    assert "<dt>All 3</dt><dd>about 1 h 6 min, 2 at a time</dd>" in bounded
    assert "<dd>about 1 h 40 min, one after another</dd>" in panel(gradient_accumulation_steps=1, seeds=3)


def test_the_time_of_a_grid_is_the_sum_of_its_runs() -> None:
    """Steps of 2 s and of 4 s: 2,000 s, 4,000 s, and in the order of the grid."""
    ran("earlier", a_ready_host(gpus=1, gpu_hour_price=3.6, currency="$"), COLOCATE)
    grid = {"profile": a_gpu_profile().pk, "grid": "gradient_accumulation_steps: 1, 2\nbeta: 0, 0.1"}
    text = panel(**grid)
    assert "<dt>Each run</dt><dd>about 33 min 20 s to 1 h 6 min</dd>" in text
    assert "<dt>All 4</dt><dd>about 3 h 20 min, one after another</dd>" in text
    assert "<dt>GPU-hours in total</dt><dd>about 3.33: $12.00</dd>" in text
    assert "A step" not in text
    assert "<dd>about 1 h 40 min, 2 at a time</dd>" in panel(**grid, at_once=2)


def test_programs_are_told_the_same_time() -> None:
    run = ran("earlier", a_ready_host())
    time = Program().post("preflight", {"spec": run.spec}).json()["time"]
    assert (time["by_run"], time["host"], time["step_s"], time["cost"]) == (run.pk, "box", 2.0, None)


def test_twice_the_completions_take_twice_the_time_and_the_page_says_so() -> None:
    ran("earlier", a_ready_host())
    text = panel(gradient_accumulation_steps=2)
    assert "about 4 s, 8k tokens" in text
    assert "scaled to this batch and length" in text


def test_gpu_hours_and_money_where_the_host_has_a_price() -> None:
    host = a_ready_host(gpus=1, gpu_hour_price=3.6, currency="$")
    ran("earlier", host, COLOCATE)
    text = panel(profile=a_gpu_profile().pk, gradient_accumulation_steps=1)
    assert "about 0.556: $2.00" in text
    Host.objects.update(gpu_hour_price=None)
    assert "about 0.556, cost unknown</dd>" in panel(profile=HardwareProfile.objects.get(name="colocated").pk)


def test_a_model_with_as_many_parameters_counts_as_the_same() -> None:
    host = a_ready_host()
    ran("another name", host, model="/models/copy")
    assert "another name" not in panel()
    inspected(host)
    assert "another name" not in panel()
    inspected(host, "/models/copy")
    assert "another name" in panel()


def test_runs_of_other_hosts_say_nothing_of_the_chosen_one() -> None:
    ran("elsewhere", a_ready_host("other"))
    assert "elsewhere" in panel(host="")
    assert "elsewhere" not in panel(host=a_ready_host("box").pk)


def test_without_such_a_run_a_rule_of_thumb_is_marked_as_one() -> None:
    host = a_ready_host(gpus=1)
    host.inventory |= {"versions": {"vllm": "0.31.0"}}
    host.save()
    inspected(host)
    ran("on the CPU", host)
    text = panel(profile=a_gpu_profile().pk)
    assert "rule of thumb, not measured" in text
    assert "No recent run on box is similar to this one." in text
    assert "on the CPU" not in text


def test_a_machine_that_has_still_to_be_asked_for_has_its_sources_price_or_says_that_it_is_unknown() -> None:
    host, profile = a_ready_host(), a_gpu_profile().pk
    inspected(host)
    source = MachineSource.objects.create(name="Cluster A", kind="slurm", gpus=2, options={"gpu_hour_usd": "3.60"})
    text = panel(profile=profile)
    found = re.search(r"<dt>GPU-hours</dt><dd>about ([\d.]+): \$([\d.]+)</dd>", text)
    assert found is not None
    assert float(found[2]) == pytest.approx(3.6 * float(found[1]), rel=0.01)
    assert "A GPU-hour there costs $3.60; the whole machine (2 GPUs) is charged" in text
    source.options = {}
    source.save()
    text = panel(profile=profile)
    assert "cost unknown</dd>" in text
    assert "No price per GPU-hour is known for machines of Cluster A" in text
    ModelInspection.objects.all().delete()
    text = panel(profile=profile)
    assert "<dt>The run</dt><dd>unknown</dd>" in text
    assert "<dt>Cost</dt><dd>unknown</dd>" in text


def test_nothing_is_shown_where_nothing_can_be_known() -> None:
    host = a_ready_host()
    assert "Expected time" not in panel()
    inspected(host)
    assert "Expected time" not in panel(profile=cpu_profile().pk)
    assert "Expected time" not in panel(profile=a_gpu_profile().pk)


@pytest.mark.parametrize("number", ["0", "-1", "9" * 400, "text"])
def test_numbers_that_make_no_sense_break_nothing(number: str) -> None:
    host = a_ready_host(gpus=1)
    inspected(host)
    ran("earlier", host, COLOCATE)
    profile = a_gpu_profile().pk
    for name in ("per_device_train_batch_size", "max_completion_length", "num_iterations", "max_steps"):
        panel(profile=profile, **{name: number})


def test_a_run_without_a_steady_step_gives_way_to_the_next() -> None:
    host = a_ready_host()
    ran("earlier", host)
    attempt = an_attempt(run=a_run("one step", host=host, grpo={"max_steps": 20, **BATCH}))
    Attempt.objects.filter(pk=attempt.pk).update(host=host, started_at=timezone.now())
    ingest.accept(attempt, [train(1, step_time=60.0, num_tokens=10.0), train(2, reward=1.0)])
    assert ">earlier</a>" in panel()


def test_the_number_of_queries_does_not_grow_with_the_runs() -> None:
    host, client = a_ready_host(), operator()
    rewards_named("tags")
    a_version()
    inspected(host)
    counts = []
    for _ in range(3):
        for number in range(3):
            ran(f"run {number}", host)
        panel(client)
        with CaptureQueriesContext(connection) as taken:
            panel(client)
        counts.append(len([query for query in taken if "runs_" in query["sql"]]))
    assert counts == [counts[0]] * 3
