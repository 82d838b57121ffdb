from django.db import migrations, models

from runs.engine.states import EndReason


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_recent_visits")]

    operations = [
        migrations.AddField("attempt", "resumes_at", models.DateTimeField(db_index=True, null=True)),
        migrations.AlterField(
            "attempt",
            "reason",
            models.CharField(blank=True, choices=[(reason, reason) for reason in EndReason], max_length=24),
        ),
    ]
