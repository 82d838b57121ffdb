from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0018_sources_of_samples")]

    operations = [
        migrations.AddField(model_name="samplerow", name="scored", field=models.IntegerField(null=True)),
        migrations.AddField(model_name="samplerow", name="unfinished", field=models.IntegerField(null=True)),
    ]
