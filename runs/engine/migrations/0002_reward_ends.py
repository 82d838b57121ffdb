from array import array
from sys import byteorder

from django.db import migrations, models
from django.db.models import F

ENDS = 10


def fill(apps, schema_editor):
    """Fill in the first and last rewards of earlier runs, from rows and chunks as they were stored then."""
    runs, chunks, rows = (apps.get_model("runs", name).objects for name in ("Run", "MetricChunk", "MetricRow"))
    for pk in runs.filter(trend_of__gt=0).values_list("pk", flat=True):
        by_seq = {}
        for chunk in chunks.filter(run=pk, metric="reward"):
            by_seq.update(zip(_column(chunk, "q", 0), _column(chunk, "d", 20)))
        unfolded = rows.filter(run=pk, superseded=False, seq__gt=F("run__folded_seq"))
        by_seq.update((seq, values["reward"]) for seq, values in unfolded.values_list("seq", "values") if "reward" in values)
        rewards = [by_seq[seq] for seq in sorted(by_seq)]
        ends = rewards if len(rewards) <= 2 * ENDS else rewards[:ENDS] + rewards[-ENDS:]
        runs.filter(pk=pk).update(reward_ends=ends)


def _column(chunk, kind, start):
    """Read a packed column: 8 bytes a point, after `start` bytes a point of other columns."""
    numbers = array(kind, bytes(chunk.data)[start * chunk.points : (start + 8) * chunk.points])
    if byteorder == "big":
        numbers.byteswap()
    return numbers


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_tables")]

    operations = [
        migrations.AddField("run", "reward_ends", models.JSONField(default=list)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
