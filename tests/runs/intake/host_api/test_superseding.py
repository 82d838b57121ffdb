"""A resume cuts what it made void out of the chunks: all of it, and without a look at the rest of a long run."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.engine.models import Attempt
from runs.engine.records import MetricChunk
from runs.engine.states import RunStatus
from runs.insight.metrics import folding
from runs.insight.metrics.series import Points
from tests.runs.builders import a_host, a_run, an_attempt

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def test_a_resume_of_a_long_run_reads_only_what_it_makes_void() -> None:
    run = a_run(host=a_host())
    first = an_attempt(RunStatus.RUNNING, run=run)
    rows = [(seq, seq, float(seq), {"reward": 0.5, "kl": 0.1}) for seq in range(1, 64_001)]
    folding.add(run.pk, rows)
    folding.add(run.pk, [(seq, None, float(seq), {"gpu/0/power_w": 300.0}) for seq in range(1, 64_001)])
    Attempt.objects.filter(pk=first.pk).update(status="failed")
    second = Attempt.objects.create(id=f"{run.pk}-2", run=run, number=2, status="running", first_seq=64_001, last_seq=0)
    with CaptureQueriesContext(connection) as queries_:
        folding.supersede(second, 61_500)
    read = [q["sql"] for q in queries_ if q["sql"].startswith("SELECT") and '"data"' in q["sql"]]
    assert len(read) < 20, "of 192 chunks"
    ends = {}
    for chunk in MetricChunk.objects.order_by("last_seq"):
        ends[chunk.metric] = (chunk.last_seq, int(Points.unpack(chunk.data, chunk.points).step.max()))
    assert ends == {"reward": (61_500, 61_500), "kl": (61_500, 61_500), "gpu/0/power_w": (64_000, -1)}
    assert MetricChunk.objects.filter(outline=None).count() == 0


@pytest.mark.parametrize("step", [0, 250, 480, 700, 2000])
def test_a_third_attempt_cuts_what_two_wrote_whatever_chunks_it_lies_in(step: int) -> None:
    run = a_run(host=a_host())
    attempts = [an_attempt(run=run)]
    for number, first_seq in ((2, 2001), (3, 9001)):
        attempts.append(
            Attempt.objects.create(
                id=f"{run.pk}-{number}", run=run, number=number, status="failed", first_seq=first_seq, last_seq=0
            )
        )
    points = [(seq, seq, float(seq), {"reward": 1.0}) for seq in range(1, 450)]
    points += [(2001 + n, 480 + n, float(n), {"reward": 2.0}) for n in range(1, 1500)]
    folding.add(run.pk, points)
    late = [(seq, seq, float(seq), {"reward": 1.0, "rare": 3.0}) for seq in range(450, 481)]
    folding.add(run.pk, late)  # handed in by a reaper after the second attempt's lines
    folding.supersede(attempts[2], step)
    left: list[int] = []
    for chunk in MetricChunk.objects.filter(metric="reward"):
        left += Points.unpack(chunk.data, chunk.points).step.tolist()
    assert sorted(left) == list(range(1, min(step, 1979) + 1))
    rare = MetricChunk.objects.filter(metric="rare").values_list("points", flat=True)
    assert sum(rare) == max(0, min(step, 480) - 449)
