"""Builders for tests of the New run page: a catalogue, and what a browser sends."""

from __future__ import annotations

from typing import Any

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardVersion
from runs.launch.new_run.fields.table import ARGUMENTS
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.runs.builders import a_host

SCHEMA = {
    "trl": "1.16.0",
    "fields": [
        *({"name": field.name, "type": field.kind.__name__, "group": "Main"} for field in ARGUMENTS),
        {"name": "weight_decay", "type": "float", "default": 0.0, "help": "L2.", "group": "Optimizer"},
        {"name": "shuffle_dataset", "type": "bool", "default": True, "help": "Shuffle.", "group": "Data"},
        {"name": "top_k", "type": "int", "default": 0, "help": "Top-k.", "group": "Generation"},
        {"name": "generation_kwargs", "type": "json", "default": None, "help": "More.", "group": "Generation"},
        {"name": "optim", "type": "str", "choices": ["adamw_torch", "sgd"], "default": "adamw_torch", "group": "Other"},
        {"name": "generation_batch_size", "type": "int", "default": None, "group": "Batch"},
        {"name": "output_dir", "type": "str", "default": None, "group": "Other"},
        {"name": "model", "type": "str", "default": None, "group": "Other"},
    ],
    "defaults": {"weight_decay": 0.0, "shuffle_dataset": True, "top_k": 0, "optim": "adamw_torch"},
}


def a_ready_host(name: str = "box", **more: Any) -> Host:
    host = a_host(name, **{"trainer_schema": SCHEMA, **more})
    host.inventory |= {"trainer": "ready", "models": ["/models/tiny"], "disk_free_mib": 100_000}
    host.save(update_fields=["inventory"])
    return host


def a_version(rows: int = 100, **columns: Any) -> DatasetVersion:
    dataset, _ = Dataset.objects.get_or_create(name="sums")
    values = {
        "status": DatasetVersion.READY,
        "rows": rows,
        "validation_rows": rows // 5,
        "mapping": {"prompt": "q", "answer": "a", "chat": True},
    }
    return DatasetVersion.objects.create(dataset=dataset, number=dataset.versions.count() + 1, **{**values, **columns})


def a_config(name: str = "tags", function: str = "think_tags") -> RewardVersion:
    return saving.make(name, [{"name": "format", "function": function}])


def cpu_profile() -> HardwareProfile:
    return HardwareProfile.objects.get(name="CPU")


def sent(**changes: Any) -> dict[str, Any]:
    """A valid page as a browser sends it, with changes; None leaves a field out. Makes what of the catalogue it
    doesn't find."""
    version = DatasetVersion.objects.first() or a_version()
    rewards = RewardVersion.objects.first() or a_config()
    start = {
        "model": "/models/tiny",
        "dataset_version": version.pk,
        "reward_version": rewards.pk,
        "profile": cpu_profile().pk,
    }
    values = as_sent(LaunchForm(initial=start, schema=SCHEMA)) | changes
    return {name: value for name, value in values.items() if value is not None}
