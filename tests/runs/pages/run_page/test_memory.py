"""The memory of a run's GPUs on its page: the estimate beside the measured peak."""

from __future__ import annotations

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import ModelInspection
from runs.engine.models import Run
from runs.engine.records import MetricRow
from runs.pages.run_page.memory import compare_memory
from tests.controlplane.people import operator
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.launch.new_run.test_launch_profile import QWEN_3B

pytestmark = pytest.mark.django_db
HARDWARE = {"rollout": "server", "trainer_gpus": 1, "server": {"gpu_memory_utilization": 0.8, "weight_sync": "lora"}}
LORA = {"r": 16, "alpha": 32, "dropout": 0.0, "target_modules": ["q_proj"]}


def a_run_on_two_gpus(inspected: bool = True) -> Run:
    host = a_host("cards", gpus=2)
    run = a_run("measured", host=host, hardware=HARDWARE, model="/models/3b")
    attempt = an_attempt(run=run)
    attempt.host = host
    attempt.placement = {"host": "cards", "gpus": [0], "server_gpus": [1], "ports": [21000]}
    attempt.save()
    if inspected:
        ModelInspection.objects.create(host=host, model="/models/3b", answer=QWEN_3B, answered_at=timezone.now())
    return run


def measured(run: Run, seq: int, kind: str, **values: float) -> None:
    attempt = run.latest()
    values = {name.replace("__", "/"): value for name, value in values.items()}
    MetricRow.objects.create(run=run, attempt=attempt, seq=seq, t=1000.0 + seq, kind=kind, step=seq, values=values)


def test_each_gpu_has_its_estimate_beside_its_peak() -> None:
    run = a_run_on_two_gpus()
    for seq, used in ((1, 30_000), (2, 56_000), (3, 41_000)):
        measured(run, seq, "train", memory__rank0__reserved_mib=used - 1_000)
        measured(run, 10 + seq, "system", gpu__0__memory_mib=used)
    trainer, server = compare_memory(run)
    assert (trainer.index, server.index) == (0, 1)
    assert trainer.measured_gib == pytest.approx(56_000 / 1024)
    assert trainer.difference_percent == pytest.approx(100 * (trainer.estimated_gib / trainer.measured_gib - 1))
    assert server.measured is None
    page = operator().get(f"/runs/{run.pk}/spec/").content.decode()
    assert "Measured peak 54.7 GiB" in page
    assert "Nothing measured yet" in page


def test_a_model_that_nobody_has_read_has_no_estimate() -> None:
    run = a_run_on_two_gpus(inspected=False)
    assert compare_memory(run) == []
    assert "estimate and measured peak" not in operator().get(f"/runs/{run.pk}/spec/").content.decode()


def test_a_run_on_the_cpu_has_none() -> None:
    a_host("box")
    assert compare_memory(an_attempt().run) == []
