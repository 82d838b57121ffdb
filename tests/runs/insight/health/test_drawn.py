"""The bounds on the charts of the run page are those of the run's own preset, as its health card has them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.engine.models import Attempt, HealthPreset, Run
from runs.insight.health import tick
from runs.insight.health.judging.rules import BY_ID, RULES
from runs.insight.metrics import run_charts
from tests.controlplane.people import operator, viewer
from tests.runs.builders import SERVER, a_host, a_run, an_attempt
from tests.runs.insight.health.test_presets import save
from tests.runs.insight.health.test_tick import write
from tests.runs.insight.metrics.test_charts import a_spec
from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.hardware import Rollout

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

Lines = list[tuple[float, str]]


def drawn(run: Run, client: Client | None = None) -> dict[str, Lines]:
    """Chart -> its lines, as the run page hands them to the browser."""
    page = (client or viewer()).get(reverse("run", args=[run.pk])).content.decode()
    found = re.search(r'<script id="run-page" type="application/json">(.*?)</script>', page)
    assert found
    run_charts: list[dict[str, Any]] = json.loads(found[1])["charts"]
    return {chart["id"]: [(bound["value"], bound["name"]) for bound in chart["bounds"]] for chart in run_charts}


def preset(**bounds: dict[str, Any]) -> HealthPreset:
    return HealthPreset.objects.create(name="mine", bounds=bounds)


def going_by(own: HealthPreset, **more: Any) -> Run:
    run = a_run(**more)
    Run.objects.filter(pk=run.pk).update(preset=own)
    return run


def test_a_run_without_a_preset_of_its_own_has_the_lines_of_the_default() -> None:
    run = a_run(grpo={"beta": 0.04, "num_iterations": 2})
    assert drawn(run)["kl"] == [(0.5, "warning above 0.5"), (2.0, "bad above 2")]
    assert drawn(run)["zero-spread"] == [(0.8, "warning above 80%"), (0.98, "bad above 98%")]
    assert drawn(run)["truncated"] == [(0.3, "warning above 30%"), (0.8, "bad above 80%")]
    assert drawn(run)["entropy"] == [(0.05, "warning below 0.05"), (0.01, "bad below 0.01")]


def test_the_lines_are_those_of_the_runs_own_preset() -> None:
    clip, grad = {"warning": 0.1, "bad": 0.2}, {"warning": 3.0, "bad": 9.0}
    own = preset(kl={"warning": 0.1, "bad": None}, clip=clip, grad_high=grad)
    lines = drawn(going_by(own, grpo={"beta": 0.04, "num_iterations": 2}))
    assert lines["kl"] == [(0.1, "warning above 0.1")]
    assert lines["clip"] == [(0.1, "all: warning above 10%"), (0.2, "all: bad above 20%")]
    assert [line for line in lines["grad"] if "above" in line[1]] == [(3.0, "warning above 3"), (9.0, "bad above 9")]


def test_what_a_distance_may_be_is_a_line_on_both_sides() -> None:
    own = preset(ratio={"warning": 0.25, "bad": None}, loss={"warning": 10.0, "bad": None})
    lines = drawn(going_by(own, grpo={"num_iterations": 2}))
    assert lines["ratio"] == [(0.75, "warning below 0.75"), (1.25, "warning above 1.25")]
    assert [value for value, _ in lines["loss"]] == [-10.0, 10.0]


def test_an_edited_bound_is_there_after_a_reload() -> None:
    own = preset(kl={"warning": 0.1, "bad": 0.2})
    run, client = going_by(own, grpo={"beta": 0.04}), operator()
    save(client, own, kl__warning="0.15", kl__bad="0.25")
    assert [value for value, _ in drawn(run, client)["kl"]] == [0.15, 0.25]
    save(client, own, kl__on=None)
    assert drawn(run, client)["kl"] == []


def test_a_rule_that_does_not_apply_draws_nothing() -> None:
    lines = drawn(a_run())  # beta 0, one update per batch
    assert "kl" not in lines
    assert lines["clip"] == lines["ratio"] == []


def test_bounds_on_vllms_sampling_name_the_line_that_they_judge() -> None:
    lines = drawn(a_run(hardware=SERVER, grpo={"vllm_importance_sampling_mode": "token_truncate"}))
    assert lines["sampling-gap"] == [(0.1, "mean: warning above 0.1"), (1.0, "mean: bad above 1")]
    assert (0.1, "min: warning below 0.1") in lines["sampling-ratio"]
    masked = a_run("masked", hardware=SERVER)
    assert not any(name.startswith("min") for _, name in drawn(masked)["sampling-ratio"])


def test_a_bound_on_every_gpu_is_one_line() -> None:
    attempt = an_attempt(run=a_run(host=a_host(gpus=2)))
    Attempt.objects.filter(pk=attempt.pk).update(placement={"gpus": [0, 1]})
    assert drawn(attempt.run)["gpu-use"] == [(10.0, "warning below 10%")]


def test_the_lines_say_what_the_card_says() -> None:
    own = preset(kl={"warning": 0.125, "bad": 0.4})
    attempt = an_attempt(run=going_by(own, grpo={"beta": 0.04}))
    write(attempt, 40)
    tick.tick(timezone.now())
    check = next(c for c in Run.objects.get(pk=attempt.run_id).health["checks"] if c["rule"] == "kl")
    assert check["bound"] == ", ".join(name for _, name in drawn(attempt.run)["kl"])


def test_a_spec_that_cant_be_read_and_a_trial_have_charts_without_lines() -> None:
    attempt = an_attempt(run=a_run(grpo={"beta": 0.04}))
    Run.objects.filter(pk=attempt.run_id).update(kind="trial")
    assert not any(drawn(attempt.run).values())
    Run.objects.filter(pk=attempt.run_id).update(kind="train", spec={"schema": 99}, last_metrics={"kl": 0.1})
    assert not any(drawn(attempt.run).values())


def test_another_losss_name_of_a_metric_is_judged_alike() -> None:
    run = a_run(grpo={"loss_type": "cispo", "num_iterations": 2})
    assert [value for value, _ in drawn(run)["clip"]] == [BY_ID["clip"].warning, BY_ID["clip"].bad]


def test_every_rule_that_draws_has_a_chart() -> None:
    spec = replace(a_spec(Rollout.SERVER, beta=0.04), episodes=EpisodeSpec())
    shown = run_charts.metrics(run_charts.plan(spec, gpus=(0,)))
    assert {rule.metric.format(gpu=0) for rule in RULES if rule.drawn} <= set(shown)
