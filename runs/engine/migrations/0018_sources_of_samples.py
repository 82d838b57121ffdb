from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0017_tags_and_deletion")]

    operations = [
        migrations.AddField(model_name="samplerow", name="sources", field=models.TextField(default="")),
    ]
