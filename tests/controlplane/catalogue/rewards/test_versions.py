"""Versions of a config: made by a change that scores otherwise, and compared."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import NORMALIZE_THEN_SUM, RewardVersion
from controlplane.catalogue.rewards.saving import RewardComposition
from controlplane.catalogue.rewards.views import differences
from tests.controlplane.catalogue.rewards.test_pages import COMPONENTS, fields
from tests.controlplane.people import operator

pytestmark = pytest.mark.django_db

LONG = [{"name": "long", "function": "length", "weight": 1.0, "params": {}}]


def version(components: Any = COMPONENTS, name: str = "tags") -> RewardVersion:
    return saving.make(name, components)


def told(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    first = version(before, "compared")
    second, _ = saving.save(first.config, after)
    return [(one.name, one.before, one.after) for one in differences(first, second)]


def test_saving_what_scores_the_same_makes_no_version() -> None:
    first = version()
    spelled_out = [{"function": "think_tags", "name": "thinks", "params": {"tag": "think"}}]
    assert saving.save(first.config, spelled_out) == (first, False)


def test_another_aggregation_or_share_is_another_version() -> None:
    first = version()
    second, fresh = saving.save(first.config, RewardComposition(COMPONENTS, NORMALIZE_THEN_SUM))
    third, _ = saving.save(first.config, RewardComposition(COMPONENTS, NORMALIZE_THEN_SUM, 0.1))
    assert (fresh, second.number, third.number) == (True, 2, 3)


def test_a_renamed_config_keeps_its_version() -> None:
    first = version()
    client = operator()
    sent = fields("think_tags", name="renamed", **{"c0-name": "thinks", "based_on": "1"})
    page = client.post(f"/rewards/{first.config_id}/", sent, follow=True).content.decode()
    assert "still version 1" in page
    assert RewardVersion.objects.get().config.name == "renamed"


def test_two_who_edit_at_once_are_told_and_nothing_is_lost() -> None:
    first = version()
    saving.save(first.config, LONG)
    client, sent = operator(), fields("overlong", name="tags", based_on="1")
    answer = client.post(f"/rewards/{first.config_id}/", sent)
    assert (answer.status_code, b"has saved version 2 since you opened version 1" in answer.content) == (422, True)
    assert b'name="based_on" value="2"' in answer.content
    assert client.post(f"/rewards/{first.config_id}/", sent | {"based_on": "2"}).status_code == 302
    assert [one.number for one in first.config.versions.all()] == [3, 2, 1]


def test_a_mistake_keeps_the_pages_title() -> None:
    first = version()
    page = operator().post(f"/rewards/{first.config_id}/", fields("length", name=" ")).content.decode()
    assert "<h1>tags" in page or ">tags <span" in page


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (LONG, [("long", "", "Length × 1"), ("thinks", "Think block, strict × 1", "")]),
        ([{**COMPONENTS[0], "weight": 0.5}], [("thinks weight", "1", "0.5")]),
        ([{**COMPONENTS[0], "params": {"tag": "thought", "partial": True}}],
         [("thinks tag", "think", "thought"), ("thinks partial", "off", "on")]),
        ([{**COMPONENTS[0], "function": "soft_format", "params": {}}],
         [("thinks", "Think block, strict × 1", "Soft format × 1")]),
    ],
)  # fmt: skip
def test_a_change_is_told(after: list[dict[str, Any]], said: list[tuple[str, str, str]]) -> None:
    assert told(COMPONENTS, after) == said


def test_another_order_is_a_change_as_colours_go_by_it() -> None:
    assert told([*COMPONENTS, *LONG], [*LONG, *COMPONENTS]) == [("order", "thinks, long", "long, thinks")]


def test_a_change_in_a_schema_is_told_by_lines() -> None:
    before = {"name": "j", "function": "json_valid", "params": {"schema": '{\n"type": "object"\n}'}}
    after = {**before, "params": {"schema": '{\n"type": "array"\n}'}}
    first = version([before])
    second, _ = saving.save(first.config, [after])
    [change] = differences(first, second)
    assert [line for line in change.lines if line[0] in "+-"] == ['-"type": "object"', '+"type": "array"']


def test_what_is_archived_can_not_be_changed() -> None:
    first, client = version(), operator()
    client.post(f"/rewards/{first.config_id}/archive/")
    answer = client.post(f"/rewards/{first.config_id}/", fields("length", name="tags"))
    assert (answer.status_code, b"This reward config is archived" in answer.content) == (422, True)
