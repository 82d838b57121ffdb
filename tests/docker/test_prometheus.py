"""A real Prometheus with the shipped configuration reads a running control plane and answers what dashboard and alerts
ask for."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.docker.files import DOCKER, dashboard_expressions
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="no prometheus and promtool (Debian: prometheus)",
    ),
]
SHIPPED = DOCKER / "prometheus"
TOKEN = "the token of prometheus"
HOST = """
from django.utils import timezone
from controlplane.catalogue.hardware.models import Host
gpu = {"index": 0, "memory_mib": 1000, "used_mib": 250, "util_percent": 40}
Host.objects.create(name="gpu1", inventory={"gpus": [gpu]}, announced_at=timezone.now())
"""


@dataclass
class Prometheus:
    address: str
    control: Stack

    def ask(self, path: str, **query: str) -> Any:
        answer = httpx.get(f"{self.address}/api/v1/{path}", params=query, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expression: str) -> list[float]:
        return [float(row["value"][1]) for row in self.ask("query", query=expression)["result"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has read the control plane twice, as rates need."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "grpo-token").write_text(TOKEN)
    stack = Stack.start(
        Path(tempfile.mkdtemp(prefix="gt-")), {"CONTROLPLANE_METRICS_TOKEN_FILE": str(folder / "grpo-token")}
    )
    try:
        stack.django(HOST)
        with running(folder, stack.url) as address:
            found = Prometheus(address, stack)
            log = folder / "log"
            wait_until(lambda: found.values("count_over_time(up[5m]) >= 2"), log.read_text)
            yield found
    finally:
        stack.stop()


@contextlib.contextmanager
def running(folder: Path, url: str) -> Iterator[str]:
    """The shipped configuration for another target, over plain HTTP and more often."""
    shutil.copy(SHIPPED / "alerts.yml", folder)
    shipped = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    [job] = shipped["scrape_configs"]
    job |= {"scheme": "http", "scrape_interval": "1s", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(shipped))
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    argv = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([*argv, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _ready(address), (folder / "log").read_text)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _ready(address: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://{address}/-/ready").status_code == httpx.codes.OK
    return False


def test_the_shipped_configuration_and_alerts_are_valid(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "prometheus")
    (tmp_path / "prometheus" / "grpo-token").write_text(TOKEN)
    promtool("check", "config", str(tmp_path / "prometheus" / "prometheus.yml"))


def test_figures_arrive_with_the_installations_token(prometheus: Prometheus) -> None:
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert prometheus.values('grpo_gpu_utilisation_ratio{host="gpu1"}') == [0.4]
    assert prometheus.values("count(grpo_runs)") == [7]


def test_promtool_finds_nothing_wrong_with_the_figures(prometheus: Prometheus) -> None:
    answer = httpx.get(f"{prometheus.control.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert promtool("check", "metrics", given=answer.text) == ""


def test_the_dashboards_expressions_are_answered(prometheus: Prometheus) -> None:
    def unanswered() -> list[str]:
        asked = [one for one in dashboard_expressions() if "grpo_leases" not in one]
        return [one for one in asked if not prometheus.ask("query", query=one)["result"]]

    # A rate needs two readings of a figure that is there only since the first tick.
    wait_until(lambda: not unanswered(), lambda: str(unanswered()))


def test_alerts_are_evaluated_and_a_fine_installation_has_none(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), lambda: json.dumps(rules()))
    assert {rule["health"] for rule in rules()} == {"ok"}
    assert prometheus.values('ALERTS{alertstate="firing"}') == []


def promtool(*arguments: str, given: str = "") -> str:
    done = subprocess.run(["promtool", *arguments], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr
