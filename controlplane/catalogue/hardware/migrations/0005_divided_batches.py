"""Give built-in profiles that nobody has changed the batches that their cards have room for."""

import json
from pathlib import Path

from django.db import migrations

PROFILES = Path(__file__).with_name("profiles.json")
OLD = {
    "Single GPU, colocated vLLM": (2, 16),
    "Single GPU, server beside the trainer": (2, 16),
    "Dual GPU, LoRA hot-swap": (4, 8),
    "Three GPUs, 1 server + 2 trainers": (8, 4),
    "Four GPUs, TP=2 server + 2 trainers": (8, 4),
    "Four GPUs, 2 load-balanced servers + 2 trainers": (8, 4),
    "8 GB consumer cards, ZeRO-2 + CPU offload": (4, 8),
    "Single node guide, 8B on 80 GB": (4, 4),
    "Single node guide, 14B on 80 GB": (2, 8),
    "Single node guide, 24B on 192 GB": (1, 16),
    "7 + 1 GPUs, ZeRO-3": (2, 4),
    "3 + 1 GPUs, ZeRO-3": (2, 4),
}
"""Profile -> its batch per process and its passes per step until now."""


def divide(apps, schema_editor):
    built_in = {columns["name"]: columns for columns in json.loads(PROFILES.read_text()) if columns["name"] in OLD}
    for row in apps.get_model("hardware", "HardwareProfile").objects.filter(name__in=built_in):
        new = built_in[row.name]
        size, passes = OLD[row.name]
        old = {**new["batch"], "per_device_train_batch_size": size, "gradient_accumulation_steps": passes}
        if row.batch == old and _is_part(row.spec, new["spec"]):
            row.batch = new["batch"]
            row.save(update_fields=["batch"])


def _is_part(stored, whole):
    """Compare a stored spec; what it lacks had its default when it was stored."""
    if not isinstance(stored, dict) or not isinstance(whole, dict):
        return stored == whole
    return all(name in whole and _is_part(value, whole[name]) for name, value in stored.items())


class Migration(migrations.Migration):
    dependencies = [("hardware", "0004_inspected_revision")]

    operations = [migrations.RunPython(divide, migrations.RunPython.noop)]
