"""What reward configs and environments share: names, versions, clones, the archive and the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.db import IntegrityError
from django.urls import reverse

from controlplane.catalogue.environments import saving as environments
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.rewards import saving as rewards
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.queries import offered_versions
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Case:
    model: type[Version]
    saving: Any
    first: Any
    second: Any
    column: str
    """Of a run, that refers to a version."""

    @property
    def page(self) -> str:
        return f"/{self.model._meta.app_label}/"

    def make(self, name: str = "first", **columns: Any) -> Any:
        return self.saving.make(name, self.first, **columns)

    def change(self, version: Any, note: str = "") -> Any:
        changed, _ = self.saving.save(version.item, self.second, note=note)
        return changed

    def names(self) -> list[str]:
        return list(self.model.items()._default_manager.values_list("name", flat=True))

    def offered(self, chosen: object = None) -> set[Any]:
        return set(offered_versions(self.model, chosen))


CASES = (
    Case(
        RewardVersion,
        rewards,
        [{"name": "thinks", "function": "think_tags", "weight": 1.0, "params": {}}],
        [{"name": "long", "function": "length", "weight": 1.0, "params": {}}],
        "reward_version",
    ),
    Case(
        EnvironmentVersion,
        environments,
        environments.EnvironmentComposition([{"name": "sum", "function": "calculator", "params": {}}]),
        environments.EnvironmentComposition([{"name": "sum", "function": "calculator", "params": {"digits": 2}}]),
        "environment_version",
    ),
)


@pytest.fixture(params=CASES, ids=[case.model.kind.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_name_is_taken_once(case: Case) -> None:
    case.make()
    with pytest.raises(IntegrityError):
        case.make()


def test_the_page_of_versions_has_the_newest_first_with_its_runs(case: Case) -> None:
    first = case.make()
    case.change(first, note="another one")
    a_run("took the first", **{case.column: first})
    page = viewer().get(f"{case.page}{first.item.pk}/versions/").content.decode()
    assert page.index("Version 2</a>") < page.index("Version 1</a>")
    assert "another one" in page
    assert "1 run" in page
    assert "took the first" in viewer().get(f"{case.page}{first.item.pk}/v1/").content.decode()


def test_an_earlier_version_is_read_and_cloned(case: Case) -> None:
    first, client = case.make(description="for sums"), operator()
    case.change(first)
    assert b"This is an earlier version" in client.get(f"{case.page}{first.item.pk}/v1/").content
    client.post(f"{case.page}{first.item.pk}/v1/duplicate/")
    clone = case.model.items()._default_manager.get(name="first copy")
    version = case.model._default_manager.get(**{case.model.kind.item: clone})
    assert (version.number, version.note, clone.description) == (1, "Cloned from first v1.", "for sums")
    assert version.specs == first.specs


def test_clones_get_names_of_their_own(case: Case) -> None:
    first, client = case.make(), operator()
    for _ in range(2):
        client.post(f"{case.page}{first.item.pk}/v1/duplicate/")
    assert case.names() == ["first", "first copy", "first copy 2"]


def test_two_who_clone_at_once_both_get_a_clone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    first, names = case.make(), iter(["first", "first copy"])
    monkeypatch.setattr("controlplane.catalogue.versioned.queries.free_name", lambda model, wanted: next(names))
    assert operator().post(f"{case.page}{first.item.pk}/v1/duplicate/").status_code == 302
    assert case.names() == ["first", "first copy"]


def test_what_is_archived_is_read_and_offered_to_nobody(case: Case) -> None:
    first, client = case.make(), operator()
    own = f"{case.page}{first.item.pk}/"
    client.post(f"{own}archive/")
    assert case.offered(first.pk) == set()
    assert f"Every {case.model.kind.name} is archived" in client.get(case.page).content.decode()
    assert b">first</a>" in client.get(f"{case.page}?archived=1").content
    page = client.get(own).content.decode()
    assert "Unarchive" in page
    assert 'id="editor"' not in page
    client.post(f"{own}unarchive/")
    assert case.offered() == {first}


def test_a_new_run_is_offered_the_newest_and_the_one_that_was_chosen(case: Case) -> None:
    first = case.make()
    second = case.change(first)
    assert case.offered() == {second}
    assert case.offered(str(first.pk)) == {first, second}


@pytest.mark.parametrize("chosen", ["", "x", "-1", "9" * 30, "²", None, []])
def test_a_choice_that_is_none_offers_the_newest(case: Case, chosen: object) -> None:
    first = case.make()
    assert case.offered(chosen) == {first}


def test_the_list_is_searched_by_name_description_and_person(case: Case) -> None:
    case.make("sums")
    case.make("code", description="for programs")
    client = operator()
    assert b">sums</a>" not in client.get(f"{case.page}?q=programs").content
    assert b">code</a>" in client.get(f"{case.page}?q=programs").content
    assert f"No {case.model.kind.name} matches" in client.get(f"{case.page}?q=nothing").content.decode()


def test_deleting_leaves_the_runs(case: Case) -> None:
    first = case.make()
    run = a_run("stays", **{case.column: first})
    operator().post(reverse("delete", args=[case.model.kind.slug]), {"id": first.item.pk})
    assert "first" not in case.names()
    assert operator().get(f"{case.page}{first.item.pk}/v1/").status_code == 404
    page = viewer().get(f"/runs/{run.pk}/?tab=spec").content.decode()
    assert f"{case.page}{first.item.pk}/" not in page


def test_an_export_is_named_for_its_item_and_version(case: Case) -> None:
    first = case.make("Sums & more")
    answer = viewer().get(f"{case.page}{first.item.pk}/v1/yaml/")
    assert answer["Content-Disposition"] == 'attachment; filename="sums-more-v1.yaml"'


def test_viewers_change_nothing(case: Case) -> None:
    first, client = case.make(), viewer()
    for path in ("", "v1/duplicate/", "archive/", "unarchive/"):
        assert client.post(f"{case.page}{first.item.pk}/{path}").status_code == 403
    assert case.names() == ["first"]
