"""A trial through the page, on a real host with the real trainer: what is measured comes from two real steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.trainer]

CATALOGUE = """
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from tests.datasets import ready_version
version = ready_version("tried", [{"prompt": f"{i}+1", "answer": str(i + 1)} for i in range(8)])
rewards = saving.make("tried", [{"name": "format", "function": "think_tags"}])
batch = {"per_device_train_batch_size": 2, "num_generations": 2, "max_completion_length": 8}
spec = {"rollout": "transformers", "cpu_slots": 1, "threads": 1}
small = HardwareProfile.objects.create(name="tried small", spec=spec, batch=batch)
large = HardwareProfile.objects.create(name="tried large", spec={"rollout": "colocate", "trainer_gpus": 4}, batch=batch)
result = {"dataset_version": version.pk, "reward_version": rewards.pk, "profiles": [small.pk, large.pk],
    "host": Host.objects.get(name="testhost").pk, "key": "one page"}
"""
READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = bool(host and host.inventory.get("trainer") == "ready")
"""
RESULTS = """
from runs.engine.models import ProfileTrial
from runs.launch.trials.results import progress
result = {r.name: [r.fits, r.measured.tokens_per_s, r.measured.step_s, (r.receipt or {}).get("free"), r.why]
    for r in progress(ProfileTrial.objects.get(pk=trial)).results}
"""


def test_profiles_are_tried_on_a_real_host(trainer_stack: Stack, tiny_model: Path) -> None:
    stack = trainer_stack
    wait_until(lambda: stack.django(READY), lambda: "the host's trainer is not ready")
    model = stack.installation.models_dir / "tried"
    shutil.copytree(tiny_model, model)
    form = {"model": str(model), **stack.django(CATALOGUE)}
    with stack.client("operator") as client:
        page = client.post("/hardware/trials/new/", data=form).headers["Location"]
        ask = {"HX-Request": "true"}
        wait_until(lambda: client.get(page, headers=ask).status_code == 286, lambda: client.get(page).text[-3000:])
    found = stack.django(RESULTS, trial=int(page.strip("/").rsplit("/", 1)[-1]))
    fits, speed, step, free, _ = found["tried small"]
    assert (fits, free) == ("yes", True)
    assert speed > 0
    assert step > 0
    assert found["tried large"] == ["no", None, None, None, "Needs 4 GPUs, but testhost has none."]
