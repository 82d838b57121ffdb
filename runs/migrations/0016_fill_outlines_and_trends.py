"""Chunks of before there were outlines get theirs, and runs of before there was a trend get one.

In parts, each by itself: a large store is not held for as long as this takes, and what was broken off goes on.
"""

from django.db import migrations

BATCH = 200


def fill(apps, schema_editor):
    _outlines(apps.get_model("runs", "MetricChunk"), apps.get_model("runs", "ChunkOutline"))
    _trends(*(apps.get_model("runs", name) for name in ("Run", "MetricChunk", "MetricRow")))


def _outlines(MetricChunk, ChunkOutline):
    from runs.metrics.series import Points, outline

    after = 0
    without = MetricChunk.objects.filter(outline__isnull=True).order_by("pk")
    while chunks := list(without.filter(pk__gt=after).values_list("pk", "points", "data")[:BATCH]):
        drawn = [
            ChunkOutline(chunk_id=pk, data=outline(Points.unpack(data, points)).pack_rows())
            for pk, points, data in chunks
        ]
        ChunkOutline.objects.bulk_create(drawn, ignore_conflicts=True)
        after = chunks[-1][0]


def _trends(Run, MetricChunk, MetricRow):
    from runs.metrics.series import Points, join
    from runs.metrics.trend import REWARD, grown

    untold = Run.objects.filter(trend_of=0, last_seq__gt=0).order_by("pk")
    for run_id, folded in list(untold.values_list("pk", "folded_seq")):
        chunks = MetricChunk.objects.filter(run_id=run_id, metric=REWARD).order_by("first_seq")
        parts = [Points.unpack(data, points) for points, data in chunks.values_list("points", "data")]
        tail = MetricRow.objects.filter(run_id=run_id, seq__gt=folded, superseded=False).order_by("seq")
        rewards = [v[REWARD] for v in tail.values_list("values", flat=True).iterator(BATCH) if REWARD in v]
        points, count = grown([], 0, [*join(parts).value.tolist(), *rewards])
        if count:
            Run.objects.filter(pk=run_id, trend_of=0).update(trend=points, trend_of=count)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("runs", "0015_shipped_health_presets")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
