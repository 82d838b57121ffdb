"""What becomes of a trained adapter, through the whole product: its merge, and the download of a large model."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.browser.real_runs import GRPO, RealRun
from tests.stack import Stack

STEPS = 4
SIZE = 512 * 10**6
"""Bytes of weights to archive: the demo's model would be sent before a clock has ticked."""
TRAIN = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import launching
from workers.contract.run.spec import LoraSpec
result = launching.submit(launching.LaunchRequest(name="adapter", model=model, grpo=grpo, lora=LoraSpec(r=8, alpha=64),
    dataset_version=DatasetVersion.objects.get(dataset__name="Arithmetic", number=1),
    reward_version=RewardVersion.objects.get(config__name="Arithmetic"),
    profile=HardwareProfile.objects.get(name="One CPU slot")), user=User.objects.get(username="operator")).pk
"""
START = """
from runs.engine import checkpoints
from runs.engine.models import Run
page = f"/models/{checkpoints.last(Run.objects.get(pk=run)).event.pk}/"
result = page
"""
JOB = """
from runs.engine.models import Run
result = Run.objects.filter(source=run, kind=kind).latest("created_at").pk
"""


def measure(stack: Stack) -> dict[str, Any]:
    """`merge_equal_tokens`: the merged model says on every prompt what base and adapter say. `archive_mb_per_s`: from
    the host's files to the control plane, of SIZE bytes; `download_mb_per_s`: from there to a client."""
    model = str(stack.installation.models_dir / "tiny")
    grpo = {name: value for name, value in GRPO.items() if not name.startswith("eval")}
    trained = stack.django(TRAIN, model=model, grpo={**grpo, "max_steps": STEPS, "learning_rate": 1e-2})
    run = RealRun(stack, trained, "adapter")
    run.wait_for_end("succeeded")
    merge = _job(stack, run, "merge")
    told = merge.lines("result")[-1]["data"]["facts"]
    _enlarge(merge.folder / merge.lines("checkpoint")[-1]["data"]["path"])
    archive = _job(stack, merge, "archive")
    return {
        "merge_equal_tokens": told["equal_tokens"] == told["of"] > 0,
        "merge_prompts": told["of"],
        **_archive(stack, merge, archive),
    }


def _job(stack: Stack, source: RealRun, act: str) -> RealRun:
    """Started on the model's page."""
    page = stack.django(START, run=source.id)
    with stack.client() as client:
        assert client.post(f"{page}{act}").status_code == 302
    job = RealRun(stack, stack.django(JOB, run=source.id, kind=act), act)
    job.wait_for_end("succeeded")
    return job


def _enlarge(folder: Path) -> None:
    """By a whole safetensors file of random bytes."""
    head = json.dumps({"a": {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}).encode()
    block = os.urandom(1 << 20)
    with (folder / "more.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for start in range(0, SIZE, len(block)):
            file.write(block[: SIZE - start])


def _archive(stack: Stack, model: RealRun, job: RealRun) -> dict[str, Any]:
    (began,), (ended,) = job.lines("training"), job.lines("result")
    size = ended["data"]["facts"]["size"]
    digest = hashlib.sha256()
    started = time.perf_counter()
    with (
        stack.client() as client,
        client.stream("GET", f"{stack.django(START, run=model.id)}archive/{job.id}") as answer,
    ):
        for block in answer.iter_bytes(1 << 20):
            digest.update(block)
    took = time.perf_counter() - started
    assert digest.hexdigest() == ended["data"]["facts"]["sha256"]
    return {
        "archive_mb_per_s": round(size / 1e6 / (ended["t"] - began["t"])),
        "download_mb_per_s": round(size / 1e6 / took),
    }
