import time

import django.db.models.deletion
from django.db import migrations, models


def queue_by_age(apps, schema_editor):
    """Whoever waits keeps the place that its age gave it."""
    attempts = apps.get_model("runs", "Attempt").objects.using(schema_editor.connection.alias)
    for attempt in attempts.filter(status="queued"):
        attempts.filter(pk=attempt.pk).update(turn=attempt.created_at.timestamp())


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0008_host_ends"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="turn",
            field=models.FloatField(default=time.time),
        ),
        migrations.AddField(
            model_name="attempt",
            name="waits_how",
            field=models.CharField(
                blank=True,
                choices=[("held", "held"), ("quarantined", "quarantined"), ("kept", "kept")],
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="waits_on",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="runs.run"
            ),
        ),
        migrations.RunPython(queue_by_age, migrations.RunPython.noop),
    ]
