from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("joining", "0001_tables")]

    operations = [
        migrations.AddField(
            model_name="hostcredential", name="copied_at", field=models.DateTimeField(null=True)
        ),
    ]
