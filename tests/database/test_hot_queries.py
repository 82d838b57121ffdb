"""What is asked all the time reads no big table from end to end: with 10,000 runs on PostgreSQL, and on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.database.racing import Racers

pytestmark = pytest.mark.processes

MANY = """
from django.db import connection
from tests.database import many
many.make(a_run(), runs=runs, live=50)
ended = Attempt.objects.filter(status="succeeded")[:20].values_list("pk", "run_id")
Attempt.objects.filter(pk__in=[pk for pk, _ in ended]).update(host=Host.objects.create(name="few"))
Run.objects.filter(pk__in=[run for _, run in ended]).update(tags=["rare"])
if connection.vendor == "postgresql":  # as it does by itself, later
    connection.cursor().execute("VACUUM ANALYZE")
"""
READ_WHOLE = """
from tests.database import many
def act():
    now = timezone.now()
    some = Attempt.objects.filter(status="running").order_by("pk")[:20]
    {code}
with many.plans() as plans:
    act()
result = [plans.asked, plans.read_whole]
"""
REQUEST = "from django.test import RequestFactory\n    from runs.pages.run_list.rows import listing\n"
HOT = {
    "the list of runs": REQUEST + "    listing(RequestFactory().get('/runs/'))",
    "active runs in the list": REQUEST + "    listing(RequestFactory().get('/runs/?status=active'))",
    "succeeded runs in the list": REQUEST + "    listing(RequestFactory().get('/runs/?status=succeeded'))",
    "failed runs in the list": REQUEST + "    listing(RequestFactory().get('/runs/?status=failed'))",
    "runs of a host in the list": REQUEST + "    listing(RequestFactory().get('/runs/?host=few'))",
    "runs by name in the list": REQUEST + "    listing(RequestFactory().get('/runs/?sort=name'))",
    "all tags": "from runs.pages.run_list.rows import tags\n    tags()",
    "a look whether the list has changed": "queries.fingerprints()",
    "a sync": "ingest.accept(some[0], [event(some[0].last_seq + 1, 'phase', phase='training')])",
    "many syncs": "ingest.accept_together([ingest.Delivery(a.pk, [train(a.last_seq + 1)]) for a in some])",
    "rows after a cursor": "queries.rows_after(some[0].run_id, 10, 2001)",
    "a frame": "from runs.insight.live import frames\n"
    "    frames.read(some[0].run_id, frames.StreamCursor(5, 0), frames.FrameExtras())",
    "a page's first cursor": "from runs.insight.live import frames\n    frames.start(some[0].run_id, 5)",
    "the queue": "dispatching.dispatch_ready()",
    "the tick": "tick.tick(now)",
    "alerts": "from runs.engine.alerts import delivery\n    delivery.deliver(now)",
}


RUNS = {"sqlite": 200, "postgresql": 10_000}
"""SQLite plans without counting rows, unless it is asked to."""


@pytest.fixture(scope="module", params=RUNS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racers]:
    url = request.getfixturevalue("postgres").url("hot_queries") if request.param == "postgresql" else ""
    racers = Racers(tmp_path_factory.mktemp("hot"), url, count=1)
    racers.alone(MANY, runs=RUNS[request.param])
    yield racers
    racers.close()


def test_no_big_table_is_read_from_end_to_end(store: Racers, subtests: pytest.Subtests) -> None:
    for act in HOT:
        with subtests.test(act=act):
            asked, read_whole = store.alone(READ_WHOLE.replace("{code}", HOT[act]))
            assert asked > 0
            assert read_whole == []


def test_runs_with_a_tag_come_from_an_index_where_the_words_of_a_list_can_have_one(store: Racers) -> None:
    listing = REQUEST + ""
    code = READ_WHOLE.replace("{code}", f"{listing}    listing(RequestFactory().get('/runs/?tag=rare'))")
    vendor, read_whole = store.alone(f"{code}\nfrom django.db import connection\nresult[0] = connection.vendor")
    assert read_whole == [] or vendor == "sqlite"


def test_a_query_without_an_index_would_be_noticed(store: Racers) -> None:
    found: Any = store.alone(READ_WHOLE.replace("{code}", "list(Run.objects.filter(name='run 7'))"))
    assert [table for table, _ in found[1]] == ["runs_run"]
