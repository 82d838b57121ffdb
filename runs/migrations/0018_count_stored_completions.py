"""Runs of before are told how many completions they have stored, one after the other."""

from django.db import migrations
from django.db.models import Sum


def fill(apps, schema_editor):
    SampleRow, SampleStore = apps.get_model("runs", "SampleRow"), apps.get_model("runs", "SampleStore")
    for run_id in list(SampleStore.objects.order_by("pk").values_list("pk", flat=True)):
        stored = SampleRow.objects.filter(run_id=run_id).aggregate(completions=Sum("completions"))
        SampleStore.objects.filter(pk=run_id).update(completions=stored["completions"] or 0)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("runs", "0017_bounded_completions")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
