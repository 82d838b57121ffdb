from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned.editing import MAX_PARTS
from controlplane.platform.accounts.models import Role
from runs.engine.models import Run
from tests.controlplane.catalogue.datasets.steps import ready
from tests.controlplane.people import make_user, operator, signed_in, viewer
from workers.rewards.library import LIBRARY

pytestmark = pytest.mark.django_db

NASTY = "<script>alert(1)</script>"
COMPONENTS = [{"name": "thinks", "function": "think_tags", "weight": 1.0, "params": {"tag": "think"}}]


def a_config(name: str = "tags", components: Any = None, **columns: Any) -> RewardConfig:
    return saving.make(name, COMPONENTS if components is None else components, **columns).config


def fields(*functions: str, name: str = "mine", **changes: Any) -> dict[str, Any]:
    """The editor's form with a row for each function, as the browser sends it."""
    sent: dict[str, Any] = {"name": name, "description": "", "row": []}
    for i, key in enumerate(functions):
        prefix = f"c{i}"
        sent["row"].append(prefix)
        sent |= {f"{prefix}-function": key, f"{prefix}-name": f"{key}_{i}", f"{prefix}-weight": "1"}
        for param, value in LIBRARY[key].defaults().items():
            if value is not False:
                sent[f"{prefix}-p_{param}"] = str(value) if value is not True else "on"
    return sent | changes


def save(sent: dict[str, Any], client: Client | None = None, to: str = "new/"):
    return (client or operator()).post(f"/rewards/{to}", sent)


def test_an_empty_list_offers_the_first_step_to_those_who_may():
    assert b"New reward config" in operator().get("/rewards/").content
    page = viewer().get("/rewards/").content
    assert b"No reward configs yet" in page
    assert b"New reward config" not in page


COMPLETE = [key for key, reward in LIBRARY.items() if not reward.check(reward.defaults()) and not reward.admin_only]


@pytest.mark.parametrize("key", COMPLETE)
def test_every_reward_of_the_library_can_be_saved_with_its_defaults(key):
    assert save(fields(key)).status_code == 302
    [part] = RewardVersion.objects.get().components
    assert part == {"name": f"{key}_0", "function": key, "weight": 1.0, "params": LIBRARY[key].defaults()}


def test_the_editor_says_which_component_drowns_which_and_how_to_mend_it():
    sent = fields("think_tags", "unique_chars", **{"c0-weight": "0.9", "c1-weight": "0.1"})
    page = operator().post("/rewards/balance/", sent).content.decode()
    assert "unique_chars_1 dominates the other components:" in page
    assert "which is 5 times the span of think_tags_0 (0.90), the largest of the others." in page
    assert "Set its weight to 0.02" in page


@pytest.mark.parametrize("key", [key for key, reward in LIBRARY.items() if reward.check(reward.defaults())])
def test_one_that_has_to_be_told_something_says_what_and_shows_its_parameters(key):
    answer = save(fields(key))
    assert answer.status_code == 422
    [component] = answer.context["editor"].rows
    assert component.errors
    assert component.needed
    assert not RewardConfig.objects.exists()


def test_an_operator_adds_no_code():
    assert operator().get("/rewards/component/", {"function": "python"}).status_code == 404
    answer = save(fields("python"))
    assert (answer.status_code, b"Only an admin can add or change code" in answer.content) == (422, True)


def test_what_was_saved_comes_back_in_the_editor():
    save(fields("length", "think_tags", **{"c0-p_target": "77", "c0-weight": "-0.25"}))
    page = operator().get(f"/rewards/{RewardConfig.objects.get().pk}/").content.decode()
    assert 'value="77"' in page
    assert 'value="-0.25"' in page


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "a\u202eb"}, "control characters"),
        ({"c0-weight": "nan"}, "Enter a number."),
        ({"c0-weight": "inf"}, "Enter a number."),
        ({"c0-weight": ""}, "This field is required."),
        ({"c0-name": "two words"}, "Enter letters, digits"),
        ({"c0-name": "../x"}, "Enter letters, digits"),
        ({"c0-name": "length_1"}, "Another component has this name"),
        ({"c0-p_tag": "a b"}, "Must be a name"),
        ({"c0-p_tag": ""}, "Must be a name"),
        ({"c1-p_target": "many"}, "Enter a whole number."),
        ({"c1-p_target": "-1"}, "Must be at least 0."),
        ({"c0-weight": "0", "c1-weight": "0"}, "Every weight is 0"),
        ({"row": []}, "Add at least one component"),
        ({"row": ["c9", "<x>"]}, "Add at least one component"),
        ({"c0-function": "os.system", "c1-function": "nothing"}, "Add at least one component"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_saved(changes, said):
    answer = save(fields("think_tags", "length", **changes))
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not RewardConfig.objects.exists()


def test_what_is_wrong_is_said_at_the_top_too_and_leads_there():
    page = save(fields("think_tags", "length", **{"c0-name": "two words", "c1-p_target": "-1", "name": ""})).content
    assert b"3 fields to correct" in page
    for place in (b"id_name", b"c0", b"c1"):
        assert b'<li><a href="#' + place + b'">' in page
        assert b'id="' + place + b'"' in page


@pytest.mark.parametrize(
    ("key", "label"), [("judge", "Timeout (s)"), ("tests_passed", "Memory (MiB)"), ("length", "Target")]
)
def test_a_parameter_is_named_in_words_with_its_unit(key, label):
    assert f">{label}</label>" in operator().get("/rewards/component/", {"function": key}).content.decode()


def test_what_was_made_of_a_config_that_is_deleted_meanwhile_can_be_kept():
    sent = fields("length", **{"c0-p_target": "77", "based_on": "1", "note": "longer"})
    answer = save(sent, to="4711/")
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "deleted since you opened it" in page
    assert 'value="77"' in page
    assert 'action="/rewards/new/"' in page
    assert save(sent).status_code == 302
    assert save(sent, viewer(), "4711/").status_code in (403, 404)


def test_a_quoted_value_keeps_its_letters():
    answer = save(fields("json_valid", **{"c0-p_schema": '{"type": "Nope"}'}))
    assert "Is not a valid JSON Schema: at type: &#x27;Nope&#x27;" in answer.content.decode()


def test_more_components_than_fit_are_refused_and_none_is_lost():
    answer = save(fields(*["length"] * (MAX_PARTS + 3)))
    assert answer.status_code == 422
    assert f"There are {MAX_PARTS + 3} components; the limit is {MAX_PARTS}" in answer.content.decode()
    assert len(answer.context["editor"].rows) == MAX_PARTS + 3
    assert not RewardConfig.objects.exists()
    assert save(fields(*["length"] * MAX_PARTS)).status_code == 302


def test_a_choice_that_does_not_exist_is_refused():
    answer = save(fields("numeric_match", **{"c0-p_source": "the web"}))
    assert (answer.status_code, b"Must be one of " in answer.content) == (422, True)


def test_names_of_configs_are_unique():
    a_config("mine")
    answer = save(fields("length"))
    assert (answer.status_code, b"A reward config with this name already exists" in answer.content) == (422, True)


def test_editing_changes_the_config_and_no_run_of_the_past():
    config = a_config()
    frozen = {"rewards": COMPONENTS}
    first = config.newest()
    run = Run.objects.create(name="r", owner=make_user(), spec=frozen, dataset_version=ready(), reward_version=first)
    assert save(fields("length", name="tags"), to=f"{config.pk}/").status_code == 302
    run.refresh_from_db()
    told = [(version.number, version.components[0]["function"]) for version in config.versions.all()]
    assert told == [(2, "length"), (1, "think_tags")]
    assert (run.reward_version, run.spec) == (first, frozen)


def test_a_component_that_left_the_library_is_spoken_of():
    config = a_config(components=[*COMPONENTS, {"name": "old", "function": "gone", "weight": 1.0, "params": {}}])
    assert b"removed when you save: old" in operator().get(f"/rewards/{config.pk}/").content


def test_a_new_row_gets_a_name_that_no_other_row_has():
    page = operator().get("/rewards/component/", {"function": "length", "row": "c0", "c0-name": "length"}).content
    assert b'value="length_2"' in page
    assert operator().get("/rewards/component/", {"function": "os.system"}).status_code == 404


def test_the_playground_scores_completions_of_a_real_row():
    version = ready()
    sent = fields("numeric_match", version=version.pk, sample="2", completion=["4", "5"])
    page = operator().post("/rewards/try/", sent).content.decode()
    assert "numeric_match_0" in page
    assert "+0.71" in page
    assert "−0.71" in page


def test_the_playground_goes_on_while_a_field_is_half_typed():
    sent = fields("length", "think_tags", **{"c0-weight": "", "completion": ["a", "b"]})
    page = operator().post("/rewards/try/", sent).content.decode()
    assert "length_0: weight: This field is required. It is ignored." in page
    assert re.findall(r'class="main (c\d)"', page) == ["c2"], "the other one keeps its colour"
    assert "think_tags_1" in page


@pytest.mark.parametrize("asked", [{"version": "999"}, {"version": "x"}, {"sample": "99"}, {"sample": "-1"}, {}])
def test_a_row_that_is_not_there_falls_back_to_one_that_is(asked):
    ready()
    assert b"What is" in operator().get("/rewards/sample/", asked).content


def test_without_a_dataset_there_is_a_row_to_try_on():
    assert b"What is 6 times 7?" in operator().get("/rewards/new/").content


def test_text_of_people_and_data_is_shown_as_text():
    version = ready([{"question": NASTY, "answer": f"#### {NASTY}"}])
    config = a_config(name=NASTY, description=NASTY)
    client = operator()
    pages = [client.get("/rewards/"), client.get(f"/rewards/{config.pk}/"), viewer().get(f"/rewards/{config.pk}/")]
    pages += [client.get("/rewards/sample/", {"version": version.pk})]
    for page in pages:
        assert NASTY not in page.content.decode()
        assert "&lt;script&gt;" in page.content.decode()
    assert NASTY not in client.post("/rewards/try/", fields("length", completion=[NASTY])).content.decode()


def test_a_viewer_sees_the_composition_without_the_editor():
    page = viewer().get(f"/rewards/{a_config().pk}/").content.decode()
    assert "think_tags" in page
    assert "<form" not in page.partition("<main")[2]


def test_viewers_change_nothing():
    config, client = a_config(), viewer()
    for path in ("", "v1/duplicate/", "archive/", "unarchive/"):
        assert client.post(f"/rewards/{config.pk}/{path}").status_code == 403
    assert client.post("/rewards/new/").status_code == 403
    assert client.post("/rewards/try/").status_code == 403
    assert RewardConfig.objects.count() == 1


@pytest.mark.parametrize("path", ["1/v1/duplicate/", "1/archive/", "try/", "balance/"])
def test_acts_take_a_post(path):
    assert operator().get(f"/rewards/{path}").status_code == 405


def test_saving_without_a_csrf_token_is_refused():
    client = signed_in(user=make_user(Role.OPERATOR), csrf=True)
    assert save(fields("length"), client).status_code == 403
    assert not RewardConfig.objects.exists()
