from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hardware", "0003_serve_address")]

    operations = [
        migrations.AddField("modelinspection", "revision", models.CharField(blank=True, default="", max_length=200),
                            preserve_default=False),
    ]
