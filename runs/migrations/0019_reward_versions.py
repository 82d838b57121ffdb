import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rewards", "0002_versions"),
        ("runs", "0019_reward_failed"),
    ]

    operations = [
        migrations.AddField(
            "run",
            "reward_version",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="runs",
                to="rewards.rewardversion",
            ),
        ),
        migrations.AddField(
            "profiletrial",
            "reward_version",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="rewards.rewardversion",
            ),
        ),
    ]
