from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0002_sign_in_links"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="max_queued",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="user",
            name="max_running",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
    ]
