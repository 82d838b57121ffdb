from django.db import migrations, models

STATUSES = ("fetching", "checking", "needs_mapping", "ready", "invalid")


class Migration(migrations.Migration):
    dependencies = [("datasets", "0003_sources_and_lineage")]

    operations = [
        migrations.AddField(
            model_name="datasetversion",
            name="split",
            field=models.JSONField(default=dict),
        ),
        migrations.AlterField(
            model_name="datasetversion",
            name="status",
            field=models.CharField(
                max_length=16, default="checking", choices=[(status, status) for status in STATUSES]
            ),
        ),
    ]
