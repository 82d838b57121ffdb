"""Secrets may be the address and token of an engine of machines."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_store_secret")]

    operations = [
        migrations.AlterField(
            model_name="secret",
            name="kind",
            field=models.CharField(
                choices=[
                    ("endpoint", "Endpoint (judge, player, W&B, MLflow)"),
                    ("hub", "Token of the model hub"),
                    ("store", "Store for checkpoints (S3)"),
                    ("engine", "API server of SkyPilot"),
                ],
                default="endpoint",
                max_length=8,
            ),
        )
    ]
