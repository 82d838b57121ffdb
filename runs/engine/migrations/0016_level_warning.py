"""The level "watch" of health is called "warning": in assessments, alerts, presets and saved views."""

import re

from django.db import migrations

LEVELS = {"verdict", "level", "stood", "state"}
BOUNDS = {"bound", "bound_text"}
"""Texts such as "watch above 0.5, bad above 2"."""


def fill(apps, schema_editor):
    def rows(model, field, **those):
        found = apps.get_model("runs", model).objects
        for pk in found.filter(**those).values_list("pk", flat=True):
            row = found.filter(pk=pk)
            value = row.values_list(field, flat=True).get()
            if (new := renamed(value)) != value:
                row.update(**{field: new})

    rows("Run", "health", health__has_key="verdict")
    rows("RunEvent", "data", kind="alert")
    rows("HealthPreset", "bounds")
    views = apps.get_model("runs", "SavedView").objects
    for pk, query in views.values_list("pk", "query"):
        views.filter(pk=pk).update(query=re.sub(r"\bhealth=watch\b", "health=warning", query))


def renamed(value, name=""):
    if isinstance(value, dict):
        keys = {key: "warning" if key == "watch" else key for key in value}
        return {keys[key]: each if key == "memory" else renamed(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    if name in LEVELS and value == "watch":
        return "warning"
    if name in BOUNDS and isinstance(value, str):
        return re.sub(r"^watch ", "warning ", value)
    return value


class Migration(migrations.Migration):
    dependencies = [("runs", "0015_lines_by_run_alone")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
