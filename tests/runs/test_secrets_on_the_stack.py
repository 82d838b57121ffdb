"""An endpoint's key in the whole product: from the form to the trainer's environment, and nowhere else."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
import redis

from tests.stack import Stack
from tests.workers.attempts import of_process
from tests.workers.test_host_on_the_stack import LOOK, STOP, until
from workers.supervisor import procfs

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

KEY = "sk-from-the-form-to-the-trainer-alone"
SUBMIT = """
from controlplane.hardware.models import HardwareProfile, Host
from controlplane.rewards import saving
from runs.scheduling import launching
from tests.datasets import ready_version
from tests.runs import builders
judge = {"name": "judged", "function": "judge", "params": {"endpoint": "STACK_JUDGE", "model": "m", "rubric": "Good?"}}
run = launching.submit(user=builders.a_user(), name=name, host=Host.objects.get(name="testhost"),
    dataset_version=ready_version("judged"), reward_version=saving.make("judged", [judge]),
    profile=HardwareProfile.objects.create(name="judged", spec=builders.CPU), model=model, grpo={"max_steps": 4000})
result = run.pk
"""
PIDS = """
from runs.models import RunEvent
result = {e.data["role"]: e.data["pid"] for e in RunEvent.objects.filter(run_id=run, kind="process_started")}
"""


def holders(of: dict[str, bytes]) -> list[str]:
    return [name for name, content in of.items() if KEY.encode() in content]


def files_below(folder: Path) -> dict[str, bytes]:
    """As they are; a product that runs takes some away meanwhile."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                found |= {str(path): path.read_bytes()} if path.is_file() else {}
    return found


def test_a_key_is_in_the_trainers_environment_and_in_nothing_else(stack: Stack) -> None:
    address = "https://judge.example/v1"
    with stack.client("admin") as client:
        kept = client.post(
            "/settings/secrets/", data={"name": "STACK_JUDGE", "kind": "endpoint", "address": address, "key": KEY}
        )
        assert kept.status_code == 302
    model = stack.installation.models_dir / "judged"
    model.mkdir()
    (model / "config.json").write_text("{}")
    run = stack.django(SUBMIT, model=str(model), name="steps:4000,pause:0.05")
    until(stack, LOOK, lambda found: found["rows"] > 3, run=run)

    trainer = stack.django(PIDS, run=run)["trainer"]
    environments = {str(row.pid): of_process(row.pid, "environ") for row in procfs.table()}
    lines = {str(row.pid): of_process(row.pid, "cmdline") for row in procfs.table()}
    broker = redis.Redis.from_url(stack.installation.redis_url)
    messages = {str(key): broker.dump(key) or b"" for key in broker.scan_iter()}
    # Of the database only what is sealed is on the disk; environment.json is the fake trainer's own.
    files = files_below(stack.installation.data)
    with stack.client("admin") as client:
        paths = ["/settings/secrets/", *(f"/runs/{run}/{page}" for page in ("", "spec/", "events/", "logs/", "about/"))]
        pages = {path: client.get(path) for path in paths}
    until(stack, STOP + LOOK, lambda found: found["status"] == "stopped", run=run, mode="now")

    assert holders(environments) == [str(trainer)]
    assert holders(lines) == []
    assert holders(messages) == []
    assert [Path(name).name for name in holders(files)] == ["environment.json"]
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(paths, 200)
    assert holders({path: page.content for path, page in pages.items()}) == []
    told = json.loads(next(text for name, text in files.items() if name.endswith("environment.json")))
    assert json.loads(told["GRPO_SECRET_STACK_JUDGE"]) == {"address": address, "key": KEY}
