"""grpoctl and an MCP client against the whole product: launch, watch, stop, and the same run again from its YAML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.platform import safe_yaml
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.browser.tiny_folder import write_model
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from mcp import Client

pytestmark = [pytest.mark.processes, pytest.mark.trainer]

PREPARE = """
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import User
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards import saving
from tests.datasets import ready_version
version = ready_version("sums", [{"prompt": f"{i}+1", "answer": str(i + 1)} for i in range(64)])
rewards = saving.make("tags", [{"name": "format", "function": "think_tags"}])
token = lambda scope: api_tokens.make(User.objects.get(username="operator"), scope, scope, days=7)[1]
result = {"dataset_version": version.pk, "reward_version": rewards.pk, "operate": token("operate"),
    "read": token("read"), "profile": HardwareProfile.objects.get(name="CPU").pk}
"""
READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = bool(host and host.inventory.get("trainer") == "ready")
"""


@dataclass
class Terminal:
    """A person's terminal: grpoctl with a token."""

    stack: Stack
    rows: dict[str, str]
    model: str

    def environment(self, token: str) -> dict[str, str]:
        return {**os.environ, "GRPOCTL_URL": self.stack.url, "GRPOCTL_TOKEN": self.rows[token]}

    def run(self, *words: str, token: str = "operate", typed: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "controlplane.ctl", *words]
        return subprocess.run(
            command, env=self.environment(token), cwd=ROOT, input=typed, capture_output=True, text=True, timeout=240
        )

    def launch(self, behaviour: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A run with a behaviour of the fake trainer."""
        chosen = {name: self.rows[name] for name in ("dataset_version", "reward_version", "profile")}
        values = {**chosen, "model": self.model, "max_steps": 3}
        pairs = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        return self.run("launch", "--name", f"a run #trainer={behaviour}", *pairs, *words)

    def spec(self, run_id: str) -> dict[str, object]:
        spec: dict[str, object] = safe_yaml.load(self.run("runs", "get", run_id, "-o", "yaml").stdout.encode())
        return spec


@pytest.fixture(scope="module")
def terminal(make_stack: Callable[..., Stack], trainer_python: Path) -> Terminal:
    stack = make_stack(GRPO_TRAINER_COMMAND=command_of(FAKE_TRAINER), GRPO_TRAINER_PYTHON=str(trainer_python))
    model = stack.installation.models_dir / "tiny"
    write_model(model)
    wait_until(lambda: stack.django(READY), lambda: "the host's trainer is not ready")
    return Terminal(stack, stack.django(PREPARE), str(model))


def test_a_launch_that_waits_ends_as_its_run_ends(terminal: Terminal) -> None:
    good = terminal.launch("steps:3", "--wait")
    assert good.returncode == 0, good.stderr
    assert "succeeded · Finished all steps." in good.stderr
    assert terminal.launch("crash:3", "--wait").returncode == 3


def test_a_run_as_yaml_launches_the_same_run(terminal: Terminal) -> None:
    first = terminal.launch("steps:3").stdout.strip()
    text = terminal.run("runs", "get", first, "-o", "yaml").stdout
    second = terminal.run("launch", "-", typed=text).stdout.strip()
    assert {**terminal.spec(first), "run_id": second} == terminal.spec(second)


def test_a_stop_shows_the_receipt_and_whoever_waits_learns_of_it(terminal: Terminal) -> None:
    run_id = terminal.launch("forever").stdout.strip()
    stopped = terminal.run("stop", run_id, "--now", "--wait", "--json")
    assert json.loads(stopped.stdout)["status"] == "stopped", stopped.stderr
    assert terminal.run("wait", run_id).returncode == 4
    assert terminal.run("stop", run_id, token="read").returncode == 1


def test_a_log_and_metrics_are_followed_to_the_end(terminal: Terminal) -> None:
    run_id = terminal.launch("steps:3").stdout.strip()
    assert "fake trainer of" in terminal.run("logs", run_id, "-f").stdout
    points = json.loads(terminal.run("metrics", run_id, "reward", "--json").stdout)
    assert points["series"]["reward"]["step"] == [1, 2, 3]
    assert run_id in terminal.run("runs", "--status", "succeeded").stdout


@pytest.mark.parametrize("token", ["operate", "read"])
async def test_an_mcp_client_has_the_tools_that_its_token_may_use(terminal: Terminal, token: str) -> None:
    async with _client(terminal, token) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"list_runs", "get_health", "get_completions", "get_receipts"} <= names
    assert ({"launch_run", "stop_run"} <= names) == (token == "operate")


async def test_an_mcp_client_launches_watches_and_stops_a_run(terminal: Terminal) -> None:
    spec = terminal.spec(terminal.launch("forever").stdout.strip())
    async with _client(terminal, "operate") as client:
        launched = await client.call_tool("launch_run", {"document": json.dumps(spec)})
        assert launched.structured_content, launched
        run_id = launched.structured_content["run"]["id"]
        seen = await client.call_tool("get_run", {"run_id": run_id})
        assert seen.structured_content["name"] == spec["name"]
        stopped = await client.call_tool("stop_run", {"run_id": run_id, "mode": "now"})
        assert stopped.structured_content["changed"]
        missing = await client.call_tool("get_run", {"run_id": "rnothing"})
    assert missing.is_error
    for each in (spec["run_id"], run_id):
        assert terminal.run("stop", each, "--now", "--wait").returncode == 0


def _client(terminal: Terminal, token: str) -> Client:
    from mcp import Client, StdioServerParameters  # whoever collects the tests would wait for it

    args = ["-m", "controlplane.ctl", "mcp"]
    environment = terminal.environment(token)
    return Client(StdioServerParameters(command=sys.executable, args=args, env=environment, cwd=str(ROOT)))


def test_rows_are_downloaded_and_profiles_tried_by_paths_of_the_api(terminal: Terminal) -> None:
    [dataset] = json.loads(terminal.run("api", "datasets").stdout)["items"]
    rows = terminal.run("api", f"datasets/{dataset['dataset']}/1/export").stdout.splitlines()
    assert len(rows) == 64
    [host] = json.loads(terminal.run("api", "hosts").stdout)["items"]
    chosen = {name: terminal.rows[name] for name in ("dataset_version", "reward_version")}
    body = {**chosen, "host": host["id"], "model": terminal.model, "profiles": [terminal.rows["profile"]]}
    trial = json.loads(terminal.run("api", "trials", "-d", "-", typed=json.dumps(body)).stdout)["item"]
    assert [result["profile"] for result in trial["results"]] == ["CPU"]
    assert terminal.run("wait", trial["results"][0]["run"]).returncode == 0
    assert terminal.run("api", "trials", "-d", "-", typed="{}", token="read").returncode == 1
