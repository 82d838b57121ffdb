from django.db import migrations, models

from runs.metrics import trend


def fill(apps, schema_editor):
    runs = apps.get_model("runs", "Run").objects
    for run in runs.filter(trend_of__gt=0).only("pk").iterator():
        runs.filter(pk=run.pk).update(reward_ends=trend.rebuilt(run)["reward_ends"])


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_tables")]

    operations = [
        migrations.AddField("run", "reward_ends", models.JSONField(default=list)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
