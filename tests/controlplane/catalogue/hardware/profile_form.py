"""The profile form as a browser sends it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, as_submitted, values_of
from controlplane.catalogue.hardware.profiles import Profile
from tests.controlplane.people import operator
from workers.contract.run.hardware import HardwareSpec

NEW = "/hardware/profiles/new/"

GPU = {"trainer_gpus": 1, "cpu_slots": 0}
COLOCATE = {**GPU, "rollout": "colocate"}
SERVER = {**GPU, "rollout": "server"}
HOT_SWAP = {**SERVER, "server_weight_sync": "lora", "use_lora": "on"}
SHARED = {**HOT_SWAP, "server_shared": "on", "server_gpu_memory_utilization": 0.5}
ATTACHED = {**GPU, "rollout": "attached", "server_attached": "http://127.0.0.1:8000"}
TWO = {"trainer_gpus": 2, "processes": 2, "cpu_slots": 0, "strategy": "ddp"}


def filled(**changes: Any) -> dict[str, Any]:
    """The form for the CPU, with changes; None leaves a field out."""
    values = as_submitted(values_of(Profile("mine", "", HardwareSpec("mine", cpu_slots=1)))) | changes
    return {name: value for name, value in values.items() if value is not None}


def saved(**changes: Any) -> HardwareProfile:
    answer = operator().post(NEW, filled(**changes))
    assert answer.status_code == 302, answer.context["form"].errors
    return HardwareProfile.objects.get(name=changes.get("name", "mine"))


def refused(**changes: Any) -> dict[str, list[str]]:
    """What the form says; the page around it is not made, as there are hundreds of these."""
    form = ProfileForm(QueryDict(urlencode(filled(**changes))), profile=None)
    assert not form.is_valid()
    return form.errors
