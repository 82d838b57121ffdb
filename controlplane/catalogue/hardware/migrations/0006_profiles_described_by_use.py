"""Describe what built-in profiles are for, unless somebody has changed the description."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from django.db import migrations

from controlplane.catalogue.hardware.shipped import by_slug

OLD = {
    "one-gpu-colocate": "b8bca8eba92121b8",
    "one-gpu-shared-server": "f32f461f077ea395",
    "dual-gpu-hot-swap": "ba9dbf9a9121f7f7",
    "three-gpus": "b0c4cbd65da758e3",
    "four-gpus-tp2": "0368adf4538dfd2f",
    "two-servers-load-balanced": "cc7839e732fb83b5",
    "consumer-8gb": "10503a665e389e8b",
    "16gb-conservative": "ffac7c93a4eae059",
    "16gb-standard": "13a89e095d59196c",
    "16gb-aggressive": "e9fb9982414c2ebb",
    "guide-8b": "01c8ec872a11ccb3",
    "guide-14b": "12382cc543a9b70e",
    "guide-24b": "231edcaa8676e181",
    "seven-plus-one-zero3": "6289f8dfab85049a",
    "three-plus-one-zero3": "8126c1bc193cfd2b",
}
"""The beginning of the SHA-256 of the description until now."""


def describe(apps: Any, schema_editor: Any) -> None:
    profiles = apps.get_model("hardware", "HardwareProfile").objects
    for slug, digest in OLD.items():
        shipped = by_slug(slug)
        row = profiles.filter(name=shipped.name).first()
        if row is not None and sha256(row.description.encode()).hexdigest().startswith(digest):
            row.description = shipped.description
            row.save(update_fields=["description"])


class Migration(migrations.Migration):
    dependencies = [("hardware", "0005_divided_batches")]

    operations = [migrations.RunPython(describe, migrations.RunPython.noop)]
