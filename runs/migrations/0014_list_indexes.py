from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0013_fill_stored_completions")]

    operations = [
        migrations.AddIndex("attempt", models.Index(fields=["status"], name="attempt_status")),
        migrations.AddIndex("run", models.Index(fields=["-created_at"], name="run_newest")),
        migrations.AddIndex("run", models.Index(fields=["archived_at", "-created_at", "kind"], name="run_listed")),
    ]
