"""The list of runs over HTTP: what it shows, asks for and costs, acts on several, saved views."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from controlplane.platform.accounts.models import Role
from runs.engine import tags as run_tags
from runs.engine.models import Attempt, Run, SavedView
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.pages.run_list.query import SORTS, RunListQuery
from runs.pages.run_list.rows import PAGE_SIZE
from tests.controlplane.people import make_user, operator, signed_in, viewer
from tests.runs.builders import a_host, a_run, a_user, an_attempt

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


PARTIAL = {"HX-Request": "true"}


def text(client: Client, **asked: str) -> str:
    answer = client.get("/runs/", asked)
    assert answer.status_code == 200
    return str(answer.content.decode())


def names(**asked: str) -> list[str]:
    """Of the rows, from the top down."""
    links = re.findall(r'<a class="name"[^>]*>(.*?)</a>', text(viewer(), **asked), re.DOTALL)
    return [re.sub(r"<[^>]*>", "", link).strip() for link in links]


def many(count: int, **columns: Any) -> list[Run]:
    """Rows beside each other, without the way of life."""
    first = a_run("seed")
    fields = {name: getattr(first, name) for name in ("owner", "spec", "dataset_version", "reward_version", "profile")}
    runs = Run.objects.bulk_create([Run(name=f"run {n:03}", **fields, **columns) for n in range(count)])
    Attempt.objects.bulk_create([Attempt(id=f"{run.pk}-1", run=run, number=1, status="running") for run in runs])
    Run.objects.filter(pk=first.pk).delete()
    return runs


def test_a_row_says_how_its_run_is() -> None:
    run = an_attempt(run=a_run("first")).run
    health = {"verdict": "bad", "findings": [{"rule": "kl", "title": "KL drifts away", "level": "bad"}]}
    Run.objects.filter(pk=run.pk).update(
        step=5, max_steps=20, trend=[0.1, 0.2, 0.4], last_metrics={"reward": 0.4}, tags=["beta", "math"], health=health
    )
    shown = text(viewer())
    for words in ("running", "0.400", "<polyline", "KL drifts away", "beta", "math", "of 20", "olga"):
        assert words in shown


def test_why_a_run_failed_is_told_once() -> None:
    run = an_attempt(RunStatus.FAILED, run=a_run("first")).run
    Attempt.objects.filter(run=run).update(reason="model_unavailable")
    assert "model unavailable" not in text(viewer())
    assert "model unavailable" in text(viewer(), columns="health")
    Run.objects.filter(pk=run.pk).update(step=5)
    assert "model unavailable" in text(viewer())


def test_a_spec_that_nobody_foresaw_breaks_no_list() -> None:
    an_attempt(run=a_run("old"))
    Run.objects.update(spec={"schema": 0}, health={"verdict": "odd"})
    assert names() == names(sort="health") == ["old"]


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{key}" for key in SORTS)])
def test_what_has_no_figure_comes_last_both_ways(sort: str) -> None:
    a_run("empty")
    host = a_host()
    for name, reward, step in (("apple", 0.2, 5), ("banana", 0.9, 10)):
        run = an_attempt(run=a_run(name)).run
        Attempt.objects.filter(run=run).update(host=host)
        Run.objects.filter(pk=run.pk).update(last_metrics={"reward": reward}, step=step, health={"verdict": "well"})
    shown = names(sort=sort)
    assert sorted(shown) == ["apple", "banana", "empty"]
    if sort.removeprefix("-") in ("reward", "health", "where"):
        assert shown[-1] == "empty"
    if sort in ("-reward", "-progress"):
        assert shown[0] == "banana"
    if sort == "reward":
        assert shown[0] == "apple"


def test_the_newest_is_first_unless_another_order_is_asked() -> None:
    for name in ("one", "two", "three"):
        a_run(name)
    assert names() == names(sort="nonsense") == ["three", "two", "one"]
    assert names(sort="-age") == ["one", "two", "three"]
    assert names(sort="name") == ["one", "three", "two"]


def test_each_filter_leaves_what_it_says() -> None:
    apple, banana = an_attempt(run=a_run("apple")).run, an_attempt(RunStatus.FAILED, run=a_run("banana")).run
    a_run("cherry", user=a_user("bo"))
    Attempt.objects.filter(run=apple).update(host=a_host("gpu-1"))
    Run.objects.filter(pk=apple.pk).update(tags=["math", "50%"], health={"verdict": "well"})
    Run.objects.filter(pk=banana.pk).update(tags=["maths"], health={"verdict": "warning"})
    asked = {
        "status": ("failed", ["banana"]),
        "tag": ("math", ["apple"]),
        "health": ("unwell", ["banana"]),
        "host": ("gpu-1", ["apple"]),
        "by": ("bo", ["cherry"]),
        "q": ("BAN ol", ["banana"]),
    }
    assert {name: names(**{name: value}) for name, (value, _) in asked.items()} == {k: v for k, (_, v) in asked.items()}
    assert names(status="active") == ["cherry", "apple"]
    assert names(tag="50%") == ["apple"]
    assert names(tag="mat") == names(by="b") == []


@pytest.mark.parametrize("tag", ["größe", 'a "b"', "x'y", "100%", "日本"])
def test_a_tag_of_any_signs_is_found_and_leads_to_its_runs(tag: str) -> None:
    a_run("without")
    run_tags.tag([a_run("with").pk], a_user(), [tag])
    assert names(tag=tag) == ["with"]
    link = re.search(r'class="tag" data-list href="(/runs/[^"]*)"', text(viewer()))
    assert link
    assert "without" not in viewer().get(link[1].replace("&amp;", "&")).content.decode()


def test_the_address_keeps_what_was_asked_and_drops_what_makes_no_sense() -> None:
    asked = RunListQuery.of({"q": " a ", "sort": "-reward", "page": "3", "status": "odd", "kind": "x", "health": "bad"})
    assert asked.address() == "q=a&health=bad&sort=-reward"
    assert asked.address(page=asked.page) == "q=a&health=bad&sort=-reward&page=3"
    assert RunListQuery.of({"page": "-1"}) == RunListQuery.of({"page": "x", "sort": "--age"}) == RunListQuery()


def test_each_filter_that_is_set_can_be_taken_away_by_itself() -> None:
    an_attempt(run=a_run("apple"))
    shown = text(viewer(), status="running", q="app")
    assert 'href="/runs/?status=running" title="Remove this filter"' in shown
    assert 'href="/runs/?q=app" title="Remove this filter"' in shown


def test_pages_hold_each_run_once_and_one_beyond_the_last_is_the_last() -> None:
    many(2 * PAGE_SIZE + 3)
    pages = [names(page=str(page), sort="status") for page in (1, 2, 3)]
    assert [len(page) for page in pages] == [PAGE_SIZE, PAGE_SIZE, 3]
    assert len({name for page in pages for name in page}) == 2 * PAGE_SIZE + 3
    assert names(page="99999", sort="status") == pages[-1]
    assert f"{2 * PAGE_SIZE + 1}–{2 * PAGE_SIZE + 3} of {2 * PAGE_SIZE + 3}" in text(viewer(), page="3")


@pytest.mark.parametrize("asked", ["", "status=queued", "sort=-reward&tag=math&by=olga&q=run"])
def test_the_list_takes_as_many_queries_for_many_runs_as_for_few(asked: str) -> None:
    client, runs = operator(), many(PAGE_SIZE + 20, tags=["math"])
    Attempt.objects.filter(run__in=runs[-2:]).update(status="queued", waits_for="GPU 0", waits_on=runs[0])

    def queries(**headers: str) -> int:
        with CaptureQueriesContext(connection) as taken:
            assert client.get(f"/runs/?{asked}", headers=headers).status_code == 200
        return len(taken)

    page, refresh = queries(), queries(**PARTIAL)
    assert page <= 14
    assert refresh <= 10
    Run.objects.exclude(pk__in=[run.pk for run in runs[-5:]]).delete()
    assert (queries(), queries(**PARTIAL)) == (page, refresh)


def test_what_is_archived_is_shown_only_when_asked() -> None:
    a_run("apple")
    put_away = an_attempt(RunStatus.FAILED, run=a_run("banana")).run
    Run.objects.filter(pk=put_away.pk).update(archived_at=timezone.now())
    assert names() == ["apple"]
    assert names(archived="only") == ["banana"]
    assert names(archived="all") == ["banana", "apple"]


def test_each_empty_list_says_why_it_is_empty() -> None:
    assert "No runs yet" in text(viewer())
    assert "data-no-run" in viewer().get("/runs/").content.decode()
    assert "Nothing is archived" in text(viewer(), archived="only")
    run = an_attempt(RunStatus.FAILED).run
    assert "No run matches" in text(viewer(), q="cherry")
    assert "data-no-run" not in viewer().get("/runs/").content.decode()
    Run.objects.filter(pk=run.pk).update(archived_at=timezone.now())
    assert "Every run is archived" in text(viewer())


# --- acts on several ---------------------------------------------------------------------------------------------


def test_runs_are_archived_and_brought_back_but_not_while_they_go() -> None:
    ended, going = an_attempt(RunStatus.FAILED, run=a_run("ended")).run, an_attempt(run=a_run("going")).run
    client = operator()
    sent = {"run": [ended.pk, going.pk, "rnowhere"], "back": "?q=e&sort=name&junk=1"}
    assert client.post("/runs/archive", sent)["Location"] == "/runs/?q=e&sort=name"
    assert set(Run.objects.exclude(archived_at=None)) == {ended}
    client.post("/runs/unarchive", {"run": [ended.pk, going.pk]})
    assert not Run.objects.exclude(archived_at=None)
    told = RunEvent.objects.filter(run=ended, kind__endswith="archived").values_list("kind", flat=True)
    assert list(told) == ["archived", "unarchived"]


def test_tags_are_added_and_taken_away_and_the_timeline_has_who() -> None:
    one, two = a_run("one"), a_run("two")
    Run.objects.filter(pk=one.pk).update(tags=["old"])
    client = signed_in(user=make_user(Role.OPERATOR, name="ana"))
    client.post("/runs/tag", {"run": [one.pk, two.pk], "add": "Math,  beta   sweep,,math", "remove": "old"})
    assert {tuple(tags) for tags in Run.objects.values_list("tags", flat=True)} == {("beta sweep", "math")}
    assert set(RunEvent.objects.filter(kind="tagged").values_list("run", "actor")) == {(one.pk, "ana"), (two.pk, "ana")}
    assert (
        "Nothing was changed" in client.post("/runs/tag", {"run": one.pk, "add": "math"}, follow=True).content.decode()
    )


def test_a_run_takes_so_many_tags_and_no_more() -> None:
    full = [f"t{n:02}" for n in range(run_tags.MAX_TAGS)]
    assert run_tags.changed_tags(full, ["new"]) == full
    assert run_tags.changed_tags(full, ["new"], remove=["t00"]) == ["new", *full[1:]]


def test_a_tag_that_is_too_long_is_named_and_not_cut() -> None:
    run, client = a_run("one"), signed_in(user=make_user(Role.OPERATOR, name="ana"))
    told = "“a tag that goes on for more than…” not added: a tag may have at most 32 characters."
    asked = {"run": run.pk, "add": "math, a tag that goes on for more than thirty-two letters"}
    assert told in client.post("/runs/tag", asked, follow=True).content.decode()
    assert told in client.post(f"/runs/{run.pk}/tags", asked, headers={"HX-Request": "true"}).content.decode()
    assert Run.objects.get(pk=run.pk).tags == ["math"]


@pytest.mark.parametrize("act", ["archive", "unarchive", "tag", "stop"])
def test_a_viewer_chooses_and_changes_nothing(act: str) -> None:
    run = an_attempt(RunStatus.FAILED).run
    assert viewer().post(f"/runs/{act}", {"run": run.pk, "add": "x", "mode": "now"}).status_code == 403
    assert "Compare" in text(viewer())
    assert "Archive</button>" not in text(viewer())


# --- saved views -------------------------------------------------------------------------------------------------


def test_a_view_is_saved_as_the_list_is_and_is_its_owners_alone() -> None:
    ana, bo = signed_in(user=make_user(name="ana")), signed_in(user=make_user(name="bo"))
    a_run("apple")
    ana.post("/runs/views", {"name": " My  fails ", "back": "?status=failed&page=4&junk=1"})
    view = SavedView.objects.get()
    assert (view.name, view.query) == ("My fails", "status=failed")
    assert "My fails" in text(ana)
    assert "My fails" not in text(bo)
    assert bo.post(f"/runs/views/{view.pk}/delete").status_code == 404
    assert ana.post(f"/runs/views/{view.pk}/delete", {"back": "?q=x"})["Location"] == "/runs/?q=x"
    assert not SavedView.objects.exists()


def test_a_view_saved_under_a_name_that_is_there_takes_its_place() -> None:
    client = viewer()
    for query in ("?q=a", "?q=b"):
        client.post("/runs/views", {"name": "mine", "back": query})
    assert SavedView.objects.values_list("query", flat=True).get() == "q=b"
    assert client.post("/runs/views", {"name": " \0"}).status_code == 400
