"""The level "watch" is called "warning"."""

from django.db import migrations


def fill(apps, schema_editor):
    targets = apps.get_model("alerting", "AlertTarget").objects
    for pk, wants in targets.values_list("pk", "wants"):
        targets.filter(pk=pk).update(wants=["warning" if wish == "watch" else wish for wish in wants])


class Migration(migrations.Migration):
    dependencies = [("alerting", "0002_one_run")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
