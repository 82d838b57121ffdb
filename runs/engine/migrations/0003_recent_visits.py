from itertools import groupby

from django.db import migrations, models

RECENT = 3


def fill(apps, schema_editor):
    """From the stored groups. Prompts whose groups are all deleted count by the whole run."""
    prompts, samples = (apps.get_model("runs", name).objects for name in ("PromptProgress", "SampleRow"))
    prompts.update(recent_completions=models.F("completions"), recent_solved=models.F("solved"))
    for run_id in prompts.order_by().values_list("run_id", flat=True).distinct():
        of_run = {prompt.row: prompt for prompt in prompts.filter(run_id=run_id)}
        visits = samples.filter(run_id=run_id, superseded=False, row__isnull=False).order_by("row", "step")
        columns = visits.values_list("row", "step", "completions", "solved")
        for row, of_row in groupby(columns.iterator(), key=lambda visit: visit[0]):
            if (prompt := of_run.get(row)) is None:
                continue
            prompt.recent = [list(visit[1:]) for visit in of_row][-RECENT:]
            prompt.recent_completions = sum(visit[1] for visit in prompt.recent)
            prompt.recent_solved = sum(visit[2] for visit in prompt.recent)
        names = ["recent", "recent_completions", "recent_solved"]
        prompts.bulk_update(of_run.values(), names, batch_size=100)


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_reward_ends")]

    operations = [
        migrations.AddField("promptprogress", "recent", models.JSONField(default=list)),
        migrations.AddField("promptprogress", "recent_completions", models.IntegerField(default=0)),
        migrations.AddField("promptprogress", "recent_solved", models.IntegerField(default=0)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
