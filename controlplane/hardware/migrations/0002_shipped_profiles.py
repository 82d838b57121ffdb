"""Lays the shipped hardware profiles into the database, once; deleted ones stay deleted."""

from django.db import migrations

from controlplane.hardware.migrations._first_shipped import FIRST


def lay(apps, schema_editor):
    HardwareProfile = apps.get_model("hardware", "HardwareProfile")
    for name, description, spec in FIRST:
        HardwareProfile.objects.get_or_create(
            name=name, defaults={"description": description, "spec": {"profile": name, **spec}}
        )


class Migration(migrations.Migration):
    dependencies = [("hardware", "0001_initial")]

    operations = [migrations.RunPython(lay, migrations.RunPython.noop)]
