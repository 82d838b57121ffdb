"""Secrets may be the artifact store's keys."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_api_tokens")]

    operations = [
        migrations.AlterField(
            model_name="secret",
            name="kind",
            field=models.CharField(
                choices=[
                    ("endpoint", "Endpoint (judge, player, W&B, MLflow)"),
                    ("hub", "Token of the model hub"),
                    ("store", "Store for checkpoints (S3)"),
                ],
                default="endpoint",
                max_length=8,
            ),
        )
    ]
