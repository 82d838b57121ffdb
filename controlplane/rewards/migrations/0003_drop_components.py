from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("rewards", "0002_versions"),
        # Until then the components are copied into versions.
        ("runs", "0020_fill_reward_versions"),
    ]

    operations = [migrations.RemoveField("rewardconfig", "components")]
