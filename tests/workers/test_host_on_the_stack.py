"""The host's worker beside the real control plane: it announces itself, answers, launches and stops."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.stack import Stack
from tests.workers.attempts import wait_until
from workers.sandbox import selftest

pytestmark = pytest.mark.processes

SUBMIT = """
from tests.datasets import ready_version
from tests.runs import builders
from controlplane.hardware.models import Host
from runs.scheduling import launching

import uuid
word = uuid.uuid4().hex[:8]
version = ready_version(word)
from controlplane.rewards import saving
from controlplane.hardware.models import HardwareProfile
rewards = saving.make(word, [{"name": "format", "function": "think_tags"}])
profile = HardwareProfile.objects.create(name=word, spec=builders.CPU)
run = launching.submit(user=builders.a_user(), name=word, host=Host.objects.get(name="testhost"),
    dataset_version=version, reward_version=rewards, profile=profile, model=model, grpo={"max_steps": steps})
result = run.pk
"""
LOOK = """
from runs.models import Attempt, MetricRow
a = Attempt.objects.get(run_id=run)
result = {"status": a.status, "reason": a.reason, "receipt": a.receipt, "detail": a.detail, "phase": a.phase,
          "rows": MetricRow.objects.filter(run_id=run, kind="train").count(), "waits": a.waits_for}
"""
STOP = """
from runs.scheduling import stopping
from runs.models import Attempt
from tests.runs import builders
from workers.contract import StopMode
stopping.request_stop(Attempt.objects.get(run_id=run), StopMode(mode), builders.a_user())
"""
HOST = """
from controlplane.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = host and {"inventory": host.inventory, "schema": host.trainer_schema}
"""
ASK = """
from controlplane.hardware import inspections
from controlplane.hardware.models import Host
result = inspections.ask_inspection(Host.objects.get(name="testhost"), model).pk
"""
ANSWER = """
from controlplane.hardware.models import ModelInspection
result = ModelInspection.objects.get(pk=pk).answer
"""
TOKENIZER = """
from controlplane.datasets.models import Tokenizer
known = Tokenizer.objects.filter(pk=sha256).first()
result = known and {"model": known.model, "files": {path.name: path.read_text() for path in known.folder.iterdir()}}
"""


def until(stack: Stack, code: str, done: Any, **names: Any) -> Any:
    found: list[Any] = []

    def look() -> bool:
        found[:] = [stack.django(code, **names)]
        return bool(done(found[0]))

    wait_until(look, lambda: str(found), 90)
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
