from django.db import migrations, models
from django.db.models import F


def known_already(apps, schema_editor):
    """Whoever has signed in before knows the page."""
    apps.get_model("accounts", "User").objects.exclude(last_login=None).update(toured_at=F("last_login"))


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_engine_secret")]

    operations = [
        migrations.AddField(model_name="user", name="toured_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.RunPython(known_already, migrations.RunPython.noop),
    ]
