"""Puts a profile for each set-up in the place of the first four, where nobody has changed those.

What was deleted or renamed stays so, and what people made stays theirs; only processes that share a training by DDP,
as several always did, now say so.
"""

from django.db import migrations

from controlplane.hardware.migrations._first_shipped import FIRST
from controlplane.hardware.shipped import SHIPPED

SUCCESSORS = {
    "CPU": "cpu",
    "One GPU, vLLM colocated": "one-gpu-colocate",
    "One GPU + one GPU with a vLLM server": "dual-gpu",
    "One GPU + one GPU, LoRA hot-swap": "dual-gpu-hot-swap",
}
"""One of the first -> the new one that takes its row, and with it the runs that were launched with it."""


def lay(apps, schema_editor):
    profiles = apps.get_model("hardware", "HardwareProfile").objects
    gone = set()
    for name, description, spec in FIRST:
        row = profiles.filter(name=name).first()
        new = next(profile for profile in SHIPPED if profile.slug == SUCCESSORS[name])
        if row is None:
            gone.add(new.slug)
        elif _untouched(row, description, {"profile": name, **spec}) and not _taken(profiles, new.name, row):
            profiles.filter(pk=row.pk).update(**new.columns())
    for new in SHIPPED:
        if new.slug not in gone and not _taken(profiles, new.name):
            profiles.create(**new.columns())


def _untouched(row, description, spec):
    return row.owner_id is None and row.description == description and row.spec == spec


def _taken(profiles, name, by_another_than=None):
    others = profiles.filter(name__iexact=name)
    return (others if by_another_than is None else others.exclude(pk=by_another_than.pk)).exists()


def name_strategy(apps, schema_editor):
    for row in apps.get_model("hardware", "HardwareProfile").objects.all():
        if row.spec.get("processes", 1) > 1 and "strategy" not in row.spec:
            row.spec = {**row.spec, "strategy": "ddp"}
            row.save(update_fields=["spec"])


class Migration(migrations.Migration):
    dependencies = [("hardware", "0004_host_idle_and_removed")]

    operations = [
        migrations.RunPython(lay, migrations.RunPython.noop),
        migrations.RunPython(name_strategy, migrations.RunPython.noop),
    ]
