from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_attempt_ack_and_supervisor")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="launch_key",
            field=models.CharField(max_length=64, null=True, unique=True),
        ),
    ]
