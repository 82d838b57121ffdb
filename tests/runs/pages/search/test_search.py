"""The palette's answers: what words find, for whom, and how much is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from controlplane.catalogue.datasets.models import Corpus, Dataset
from controlplane.platform.accounts.models import ApiScope, Role
from runs.intake.host_api import ingest
from runs.pages.search import finding
from runs.pages.search.entries import ACTIONS, PAGES
from tests.controlplane.people import make_user, signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt, event

pytestmark = pytest.mark.django_db


def found(role: Role = Role.ADMIN, **query: Any) -> list[dict[str, str]]:
    items: list[dict[str, str]] = signed_in(role).get(reverse("search"), query).json()["items"]
    return items


def titles(role: Role = Role.ADMIN, **query: Any) -> list[tuple[str, str]]:
    return [(item["kind"], item["title"]) for item in found(role, **query)]


def test_every_kind_of_thing_is_found_by_every_word() -> None:
    attempt = an_attempt(run=a_run("zebra stripes"))
    run, user = attempt.run, make_user(name="zebra-keeper")
    ingest.accept(
        attempt, [event(attempt.last_seq + 1, "checkpoint", step=1, path="c/checkpoint-1", bytes=1, kept=[1])]
    )
    Dataset.objects.create(name="Zebra questions")
    Corpus.objects.create(name="zebras").versions.create(number=1)
    type(run.reward_version.config).objects.update(name="zebra match")
    type(run.profile).objects.filter(pk=run.profile_id).update(name="16 GB zebra")
    a_host("zebra-1")
    assert {kind for kind, _ in titles(q="ZEBRA")} == {
        *("Run", "Dataset", "Corpus", "Reward config", "Hardware profile", "Host", "User", "Model")
    }
    assert titles(q="stripes zeb")[0] == ("Run", "zebra stripes")
    assert ("User", user.username) not in titles(Role.OPERATOR, q="zebra")


def test_a_run_is_found_by_its_id_and_one_beyond_the_newest_is_not_found_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = a_run("zebra old"), a_run("zebra new")
    monkeypatch.setattr(finding, "RUNS_SEARCHED", 1)
    assert [item["address"] for item in found(q=old.pk)] == [reverse("run", args=[old.pk])]
    assert titles(q="zebra") == [("Run", new.name)]


def test_the_best_of_each_kind_comes_first() -> None:
    for name in ("a math set", "hardmath", "math"):
        Dataset.objects.create(name=name)
    assert [title for kind, title in titles(q="math") if kind == "Dataset"] == ["math", "a math set", "hardmath"]


def test_acts_are_offered_to_those_who_may_do_them() -> None:
    attempt = an_attempt(run=a_run("sums"))
    assert ("Action", "New run") in titles(Role.OPERATOR, q="launch")
    assert titles(Role.VIEWER, q="launch") == []
    [stop] = found(Role.OPERATOR, q="stop sums now")
    assert stop["address"] == f"{reverse('run', args=[attempt.run_id])}#dialog=stop-now"
    assert stop["title"] == "Stop “sums” now…"
    [archived] = found(Role.VIEWER, q="archive")
    assert archived["address"] == f"{reverse('runs')}?archived=only"
    assert ("Action", "Sign out") in titles(Role.VIEWER, q="sign out")
    assert ("Page", "Compare runs") in titles(Role.VIEWER, q="compare")
    assert found(Role.VIEWER, q="stop sums now") == []
    assert ("Action", "Invite a user") in titles(Role.ADMIN, q="invite")
    assert titles(Role.OPERATOR, q="invite") == []


def test_before_anything_is_typed_what_was_seen_last_comes_first_if_it_is_still_there() -> None:
    run, dataset = a_run("seen"), Dataset.objects.create(name="seen too")
    recent = [
        reverse("dataset", args=[dataset.pk]),
        reverse("run", args=[run.pk]),
        "/runs/rgone/",
        "/nowhere/",
        "/runs/",
    ]
    items = found(recent=recent)
    assert [(item["kind"], item["title"], item["about"]) for item in items[:2]] == [
        ("Recent", "seen too", "Dataset"),
        ("Recent", "seen", "Run"),
    ]
    assert {item["kind"] for item in items} == {"Recent", "Action", "Page"}
    assert {"".join(item["parts"]) == item["title"] for item in items} == {True}  # cut in two for a narrow list


def test_what_is_looked_at_does_not_grow_with_what_there_is(django_assert_max_num_queries: Any) -> None:
    for number in range(12):
        a_run(f"zebra {number}")
        Dataset.objects.create(name=f"zebra {number}")
    client = signed_in(Role.ADMIN)
    with django_assert_max_num_queries(16):
        items = client.get(reverse("search"), {"q": "zebra"}).json()["items"]
    assert len(items) <= 4 * finding.HITS_PER_KIND


def test_places_lead_to_pages_that_are_open_to_whom_they_are_offered() -> None:
    for role in Role:
        user = make_user(role)
        client = signed_in(user=user)
        offered = [entry for entry in (*PAGES, *ACTIONS) if entry.route and entry.open_to(user)]
        assert {
            entry.title for entry in offered if client.get(reverse(entry.route), follow=True).status_code != 200
        } == set()


def test_the_api_finds_the_same_without_what_only_a_browser_does() -> None:
    run = a_run("zebra")
    program = Program(ApiScope.READ)
    page = reverse("run", args=[run.pk])
    owner = run.owner.get_username()
    assert program.get("search", q="zebra").json()["items"] == [
        {"kind": "Run", "title": "zebra", "about": owner, "page": page}
    ]
    assert program.get("search", q="theme dark").json()["items"] == []
    assert program.get("search").json()["items"] == []


def test_odd_words_find_nothing_and_break_nothing(subtests: pytest.Subtests) -> None:
    for text in ["\ud800", "%", "'\"", "x" * 300, "🦓", "a\\b_"]:
        with subtests.test(text=text):
            assert signed_in().get(reverse("search"), {"q": text.encode(errors="surrogatepass")}).status_code in (
                200,
                400,
            )
