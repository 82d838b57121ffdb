from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0020_fill_reward_versions")]

    operations = [
        migrations.RemoveField("run", "reward_config"),
        migrations.RemoveField("profiletrial", "reward_config"),
    ]
