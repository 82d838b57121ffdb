from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hardware", "0001_tables")]

    operations = [
        migrations.AddField("host", "gpu_hour_price", models.FloatField(null=True)),
        migrations.AddField(
            "host", "currency", models.CharField(blank=True, default="", max_length=5), preserve_default=False
        ),
    ]
