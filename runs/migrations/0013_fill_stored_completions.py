"""Groups that were stored before their figures had columns get them, and their prompts are counted.

In parts, each by itself: a large store is not held for as long as this takes, and what was broken off begins anew.
"""

from django.db import migrations, transaction
from django.db.models import Min

BATCH = 200


def fill(apps, schema_editor):
    run_ids = apps.get_model("runs", "SampleRow").objects.values_list("run_id", flat=True).distinct()
    for run_id in list(run_ids.order_by("run_id")):
        _fill_run(apps, run_id)


def _fill_run(apps, run_id):
    from runs.completions.progress import Visit, take
    from runs.completions.solving import of

    Run, PromptProgress, SampleStore = (apps.get_model("runs", n) for n in ("Run", "PromptProgress", "SampleStore"))
    solving = of(Run.objects.values_list("spec", flat=True).get(pk=run_id))
    counted, size = {}, 0
    for row in _filled(apps, run_id, solving):
        size += row.size
        if row.row is None or row.superseded:
            continue
        each = counted.setdefault(row.row, PromptProgress(run_id=run_id, row=row.row))
        visit = Visit(row.row, row.step, row.completions, row.solved, row.reward_mean, row.reward_high)
        take(each, visit)
    with transaction.atomic():
        PromptProgress.objects.filter(run_id=run_id).delete()
        PromptProgress.objects.bulk_create(counted.values(), batch_size=BATCH)
        SampleStore.objects.update_or_create(run_id=run_id, defaults={"size": size})


def _filled(apps, run_id, solving):
    """Every group of the run, its columns just written."""
    from runs.completions.groups import figures

    SampleRow, Attempt = apps.get_model("runs", "SampleRow"), apps.get_model("runs", "Attempt")
    started = Attempt.objects.filter(run_id=run_id, started_at__isnull=False)
    void = {
        attempt.pk: started.filter(number__gt=attempt.number).aggregate(step=Min("resume_step"))["step"]
        for attempt in Attempt.objects.filter(run_id=run_id)
    }
    after = 0
    while rows := list(SampleRow.objects.filter(run_id=run_id, pk__gt=after).order_by("pk")[:BATCH]):
        for row in rows:
            told = figures(row.data, solving)
            row.row, row.mode, row.completions, row.solved = told.row, told.mode, told.count, told.solved
            row.reward_low, row.reward_mean, row.reward_high = told.low, told.mean, told.high
            row.size = told.size
            edge = void[row.attempt_id]
            row.superseded = edge is not None and row.step > edge
        columns = ("row", "mode", "completions", "solved", "reward_low", "reward_mean", "reward_high", "size")
        SampleRow.objects.bulk_update(rows, [*columns, "superseded"], batch_size=50)
        yield from rows
        after = rows[-1].pk


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("runs", "0012_stored_completions")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
