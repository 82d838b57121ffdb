"""The host's worker beside the real control plane: it announces itself, answers, launches, stops, keeps secrets."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.stack import Stack
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import of_process
from workers.sandbox import selftest
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes

SUBMIT = """
from tests.datasets import ready_version
from tests.runs import builders
from controlplane.catalogue.hardware.models import Host
from runs.engine.scheduling import launching

import uuid
word = uuid.uuid4().hex[:8]
version = ready_version(word)
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.hardware.models import HardwareProfile
rewards = saving.make(word, [{"name": "format", "function": "think_tags"}])
profile = HardwareProfile.objects.create(name=word, spec=builders.CPU)
run = launching.submit(launching.LaunchRequest(name=word, host=Host.objects.get(name="testhost"),
    dataset_version=version, reward_version=rewards, profile=profile, model=model, grpo={"max_steps": steps}),
    user=builders.a_user())
result = run.pk
"""
LOOK = """
from runs.engine.models import Attempt
from runs.engine.records import MetricRow
a = Attempt.objects.get(run_id=run)
result = {"status": a.status, "reason": a.reason, "receipt": a.receipt, "detail": a.detail, "phase": a.phase,
          "rows": MetricRow.objects.filter(run_id=run, kind="train").count(), "waits": a.waits_for}
"""
STOP = """
from runs.engine.scheduling import stopping
from runs.engine.models import Attempt
from tests.runs import builders
from workers.contract.wire.names import StopMode
stopping.request_stop(Attempt.objects.get(run_id=run), StopMode(mode), builders.a_user())
"""
HOST = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = host and {"inventory": host.inventory, "schema": host.trainer_schema}
"""
ASK = """
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host
result = inspections.request_inspection(Host.objects.get(name="testhost"), model).pk
"""
ANSWER = """
from controlplane.catalogue.hardware.models import ModelInspection
result = ModelInspection.objects.get(pk=pk).answer
"""
TOKENIZER = """
from controlplane.catalogue.datasets.models import Tokenizer
known = Tokenizer.objects.filter(pk=sha256).first()
result = known and {"model": known.model, "files": {path.name: path.read_text() for path in known.folder.iterdir()}}
"""
KEY = "sk-from-the-form-to-the-trainer-alone"
SUBMIT_JUDGED = """
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from runs.engine.scheduling import launching
from tests.datasets import ready_version
from tests.runs import builders
judge = {"name": "judged", "function": "judge", "params": {"endpoint": "STACK_JUDGE", "model": "m", "rubric": "Good?"}}
run = launching.submit(launching.LaunchRequest(name=name, host=Host.objects.get(name="testhost"),
    dataset_version=ready_version("judged"), reward_version=saving.make("judged", [judge]), model=model,
    profile=HardwareProfile.objects.create(name="judged", spec=builders.CPU), grpo={"max_steps": 4000}),
    user=builders.a_user())
result = run.pk
"""
PIDS = """
from runs.engine.records import RunEvent
result = {e.data["role"]: e.data["pid"] for e in RunEvent.objects.filter(run_id=run, kind="process_started")}
"""


def until(stack: Stack, code: str, done: Any, **names: Any) -> Any:
    found: list[Any] = []

    def look() -> bool:
        found[:] = [stack.django(code, **names)]
        return bool(done(found[0]))

    wait_until(look, lambda: str(found))
    return found[0]


def a_model(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"a.q_proj.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    return folder


def test_the_host_tells_which_sandbox_holds_there(stack: Stack) -> None:
    told = until(stack, HOST, lambda found: found and "sandbox" in found["inventory"])["inventory"]["sandbox"]
    report = selftest.probe()
    assert told == {"backend": report.backend, "tried": {str(name): why[:500] for name, why in report.tried.items()}}
    with stack.client("viewer") as client:
        page = client.get("/hardware/").text
    assert (str(report.backend) if report.backend else "has no sandbox") in page


def test_the_host_announces_itself_and_looks_at_models(stack: Stack) -> None:
    host = until(stack, HOST, lambda found: found)
    assert host["inventory"]["cpu_slots"] >= 1
    model = a_model(stack.installation.models_dir / "small")
    pk = stack.django(ASK, model=str(model))
    answer = until(stack, ANSWER, lambda found: found, pk=pk)
    assert answer["ok"] is True
    assert answer["parameters"] == 4
    brought = until(stack, TOKENIZER, lambda found: found, sha256=answer["tokenizer_files"]["sha256"])
    assert brought == {"model": str(model), "files": {"tokenizer.json": "{}"}}


@pytest.mark.telling
def test_a_run_goes_from_submit_to_succeeded_and_gives_its_slot_back(stack: Stack) -> None:
    until(stack, HOST, lambda found: found)
    model = str(a_model(stack.installation.models_dir / "small"))
    run = stack.django(SUBMIT, model=model, steps=5)
    ended = until(stack, LOOK, lambda found: found["status"] in ("succeeded", "failed", "stopped"), run=run)
    assert (ended["status"], ended["reason"]) == ("succeeded", "completed")
    assert ended["rows"] == 5
    assert ended["receipt"]["free"] is True


def test_a_stop_reaches_a_running_trainer(stack: Stack) -> None:
    until(stack, HOST, lambda found: found)
    model = str(a_model(stack.installation.models_dir / "small"))
    run = stack.django(SUBMIT, model=model, steps=100_000)
    until(stack, LOOK, lambda found: found["status"] == "running" and found["rows"] > 3, run=run)
    stack.django(STOP, run=run, mode="now")
    ended = until(stack, LOOK, lambda found: found["status"] in ("succeeded", "failed", "stopped"), run=run)
    assert (ended["status"], ended["reason"]) == ("stopped", "stopped_by_user")


def test_a_model_outside_the_hosts_folders_is_refused_there(stack: Stack) -> None:
    until(stack, HOST, lambda found: found)
    run = stack.django(SUBMIT, model="/etc", steps=5)
    ended = until(stack, LOOK, lambda found: found["status"] in ("succeeded", "failed", "stopped"), run=run)
    assert (ended["status"], ended["reason"]) == ("failed", "spec_refused")
    assert "not inside" in ended["detail"]


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
    run = stack.django(SUBMIT_JUDGED, model=str(model), name="steps:4000,pause:0.05")
    until(stack, LOOK, lambda found: found["rows"] > 3, run=run)

    trainer = stack.django(PIDS, run=run)["trainer"]
    environments = {str(row.pid): of_process(row.pid, "environ") for row in procfs.table()}
    lines = {str(row.pid): of_process(row.pid, "cmdline") for row in procfs.table()}
    broker = redis.Redis.from_url(stack.installation.redis_url)
    messages = {str(key): broker.dump(key) or b"" for key in broker.scan_iter()}
    # Of the database only what is sealed is on the disk; environment.json is the fake trainer's own.
    files = files_below(stack.installation.data)
    with stack.client("admin") as client:
        paths = ["/settings/secrets/", *(f"/runs/{run}/{page}" for page in ("", "spec/", "events/", "logs/", "notes"))]
        pages = {path: client.get(path) for path in paths}
    until(stack, STOP + LOOK, lambda found: found["status"] == "stopped", run=run, mode="now")

    assert holders(environments) == [str(trainer)]
    assert holders(lines) == []
    assert holders(messages) == []
    [held] = holders(files)
    assert Path(held).name == "environment.json"
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(paths, 200)
    assert holders({path: page.content for path, page in pages.items()}) == []
    told = json.loads(files[held])
    assert json.loads(told["GRPO_SECRET_STACK_JUDGE"]) == {"address": address, "key": KEY}
