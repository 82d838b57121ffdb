from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0016_level_warning")]

    operations = [
        migrations.RemoveIndex(model_name="run", name="run_tags"),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["tags", "deleted_at"], name="run_tags_and_deletion"),
        ),
    ]
