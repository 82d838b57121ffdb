"""Describe what built-in profiles are for, unless somebody has changed the description."""

import json
from hashlib import sha256
from pathlib import Path

from django.db import migrations

PROFILES = Path(__file__).with_name("profiles.json")

OLD = {
    "Single GPU, colocated vLLM": "b8bca8eba92121b8",
    "Single GPU, server beside the trainer": "f32f461f077ea395",
    "Dual GPU, LoRA hot-swap": "ba9dbf9a9121f7f7",
    "Three GPUs, 1 server + 2 trainers": "b0c4cbd65da758e3",
    "Four GPUs, TP=2 server + 2 trainers": "0368adf4538dfd2f",
    "Four GPUs, 2 load-balanced servers + 2 trainers": "cc7839e732fb83b5",
    "8 GB consumer cards, ZeRO-2 + CPU offload": "10503a665e389e8b",
    "16 GB conservative, 4-bit": "ffac7c93a4eae059",
    "16 GB standard, 4-bit": "13a89e095d59196c",
    "16 GB aggressive, 4-bit": "e9fb9982414c2ebb",
    "Single node guide, 8B on 80 GB": "01c8ec872a11ccb3",
    "Single node guide, 14B on 80 GB": "12382cc543a9b70e",
    "Single node guide, 24B on 192 GB": "231edcaa8676e181",
    "7 + 1 GPUs, ZeRO-3": "6289f8dfab85049a",
    "3 + 1 GPUs, ZeRO-3": "8126c1bc193cfd2b",
}
"""The beginning of the SHA-256 of the description until now."""


def describe(apps, schema_editor):
    profiles = apps.get_model("hardware", "HardwareProfile").objects
    descriptions = {columns["name"]: columns["description"] for columns in json.loads(PROFILES.read_text())}
    for row in profiles.filter(name__in=OLD):
        if sha256(row.description.encode()).hexdigest().startswith(OLD[row.name]):
            row.description = descriptions[row.name]
            row.save(update_fields=["description"])


class Migration(migrations.Migration):
    dependencies = [("hardware", "0005_divided_batches")]

    operations = [migrations.RunPython(describe, migrations.RunPython.noop)]
