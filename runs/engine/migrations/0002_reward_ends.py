from django.db import migrations, models

from runs.insight.metrics import trend
from runs.engine.models import Run


def fill(apps, schema_editor):
    runs = apps.get_model("runs", "Run").objects
    for pk in runs.filter(trend_of__gt=0).values_list("pk", flat=True):
        runs.filter(pk=pk).update(reward_ends=trend.rebuilt(Run(pk=pk))["reward_ends"])


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_tables")]

    operations = [
        migrations.AddField("run", "reward_ends", models.JSONField(default=list)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
