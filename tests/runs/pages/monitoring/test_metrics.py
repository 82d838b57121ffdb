"""What Prometheus reads, who may read it, and that the dashboard asks for nothing else."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from controlplane.platform.accounts.models import ApiScope, Role, User
from controlplane.platform.environment import EnvironmentUnusable, token_of
from runs.engine.models import Lease
from runs.intake.host_api import ingest
from runs.pages.monitoring.metrics import exposition
from tests.docker.files import alert_expressions, dashboard_expressions
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt, train

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path)
    return tmp_path


def figures() -> dict[tuple[str, ...], float]:
    """(name, values of its labels by their names …) -> figure."""
    families = text_string_to_metric_families(exposition(timezone.now()).decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_runs_are_counted_by_status() -> None:
    an_attempt("running", run=a_run("one"))
    an_attempt("failed", run=a_run("two"))
    a_run("three")
    seen = figures()
    assert [seen["grpo_runs", status] for status in ("running", "failed", "queued", "stopped")] == [1, 1, 1, 0]
    assert seen["grpo_queue_length",] == 1


def test_stored_lines_are_counted_and_their_storing_is_timed() -> None:
    before = figures().get(("grpo_ingest_seconds_count",), 0)
    ingest.accept(an_attempt("running"), [train(1), train(2)])
    seen = figures()
    assert seen["grpo_ingest_lines_total",] == 2
    assert seen["grpo_ingest_seconds_count",] == before + 1


def test_a_gpu_is_read_while_its_host_is_fresh() -> None:
    gpu = {"index": 0, "memory_mib": 1000, "used_mib": 250, "util_percent": 40}
    a_host("near", inventory={"gpus": [gpu]})
    a_host("far", inventory={"gpus": [gpu]}, announced_at=timezone.now() - timedelta(hours=1))
    seen = figures()
    assert (seen["grpo_host_fresh", "near"], seen["grpo_host_fresh", "far"]) == (1, 0)
    assert seen["grpo_gpu_memory_used_bytes", "0", "near"] == 250 * 2**20
    assert seen["grpo_gpu_utilisation_ratio", "0", "near"] == 0.4
    assert ("grpo_gpu_memory_used_bytes", "0", "far") not in seen


def test_a_quarantined_gpu_shows() -> None:
    attempt = an_attempt("running")
    Lease.objects.create(attempt=attempt, host=a_host(), resource="gpu:0", state=Lease.QUARANTINED)
    seen = figures()
    assert seen["grpo_gpus_quarantined",] == 1
    assert seen["grpo_leases", "box", "gpu", "quarantined"] == 1


def test_a_token_that_may_read_reads_them() -> None:
    answer = Program(ApiScope.READ).client.get("/metrics")
    assert (answer.status_code, answer["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert b"grpo_runs{" in answer.content


def test_the_installations_own_token_reads_them_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "METRICS_TOKEN", "of prometheus")
    own = Client(headers={"Authorization": "Bearer of prometheus"})
    assert own.get("/metrics").status_code == 200
    assert own.get("/api/v1/runs").status_code == 401
    assert Client(headers={"Authorization": "Bearer öf"}).get("/metrics").status_code == 401


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("CONTROLPLANE_METRICS_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(EnvironmentUnusable, match="at least 20 characters"):
        token_of("CONTROLPLANE_METRICS_TOKEN_FILE")


def test_without_a_token_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/metrics").status_code == 401
    assert Client(headers={"Authorization": "Bearer "}).get("/metrics").status_code == 401
    program = Program(ApiScope.READ, user=User.objects.create_user("gone", role=Role.VIEWER))
    User.objects.update(is_active=False)
    assert program.client.get("/metrics").status_code == 401


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist() -> None:
    Lease.objects.create(attempt=an_attempt("running"), host=a_host(gpus=1), resource="gpu:0")
    text = exposition(timezone.now()).decode()
    there = {name for family in text_string_to_metric_families(text) for name in _names(family)}
    expressions = [*dashboard_expressions(), *alert_expressions()]
    asked = {name for expression in expressions for name in re.findall(r"grpo_\w+", expression)}
    assert asked - there == set()
    assert len(asked) > 10


def _names(family: Any) -> set[str]:
    """Those that a query may name, also while there are no samples."""
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    return {family.name + suffix for suffix in suffixes.get(family.type, [""])}
