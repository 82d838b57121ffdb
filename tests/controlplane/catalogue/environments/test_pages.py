"""The pages of environments: what they save, refuse and show, and to whom."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from controlplane.catalogue.environments import config_yaml, saving
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from tests.controlplane.catalogue.environments.environments import CALCULATOR, an_environment, fields
from tests.controlplane.people import admin, operator, viewer
from workers.environments.library import LIBRARY
from workers.environments.sandboxed import STARTING_SOURCE

pytestmark = pytest.mark.django_db

OTHER = STARTING_SOURCE.replace("word_count", "words")


def save(sent: dict[str, Any], client: Client | None = None, to: str = "new/") -> Any:
    return (client or operator()).post(f"/environments/{to}", sent)


def test_an_empty_list_offers_the_first_step_to_those_who_may() -> None:
    assert b"New environment" in operator().get("/environments/").content
    page = viewer().get("/environments/").content
    assert b"No environments yet" in page
    assert b"New environment" not in page


NAMED_BY_PEOPLE = [key for key, entry in LIBRARY.items() if entry.name_of is None and key != "search"]
COMPLETE = [key for key in NAMED_BY_PEOPLE if not LIBRARY[key].check(LIBRARY[key].defaults())]


@pytest.mark.parametrize("key", COMPLETE)
def test_every_entry_can_be_saved_with_its_defaults(key: str) -> None:
    assert save(fields(key), admin()).status_code == 302
    [part] = EnvironmentVersion.objects.get().parts
    assert part == {"name": f"{key}_0", "function": key, "params": LIBRARY[key].defaults()}


def test_a_search_is_offered_the_corpora_and_needs_one() -> None:
    corpus = Corpus.objects.create(name="Towns")
    CorpusVersion.objects.create(corpus=corpus, number=1, status=CorpusVersion.READY, documents=3)
    assert "Towns v1 · 3 documents" in operator().get("/environments/part/?function=search").content.decode()
    assert "This field is required" in save(fields("search")).content.decode()
    assert save(fields("search", **{"c0-p_corpus": "Towns v1"})).status_code == 302


def test_an_own_tool_is_called_by_its_functions_name() -> None:
    assert save(fields("python_tool"), admin()).status_code == 302
    assert EnvironmentVersion.objects.get().specs[0].name == "word_count"


def test_limits_are_saved_with_the_parts() -> None:
    save(fields("calculator", **{"limits-turns": "2", "limits-call_s": "0.5"}))
    limits = EnvironmentVersion.objects.get().episode_limits
    assert (limits.turns, limits.call_s) == (2, 0.5)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (fields(), "Add at least one part"),
        (fields("calculator", "calculator", **{"c0-name": "sum", "c1-name": "sum"}), "Another part is also called sum"),
        (fields("calculator", **{"c0-name": "my tool"}), "Letters, digits and _"),
        (fields("calculator", **{"c0-name": "class"}), "Letters, digits and _"),
        (fields("calculator", **{"c0-p_digits": "99"}), "at most 15"),
        (fields("calculator", **{"limits-turns": "0"}), "At least 1"),
        (fields("calculator", **{"limits-at_once": "9999"}), "At most 128"),
        (fields("calculator", name=""), "This field is required"),
    ],
)
def test_what_is_wrong_is_said_beside_the_form_and_nothing_is_saved(sent: dict[str, Any], words: str) -> None:
    answer = save(sent)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    # Else a browser would keep back what is wrong in a closed fold, and say nothing.
    assert 'id="editor" class="halves environment-editor" novalidate' in answer.content.decode()
    assert not Environment.objects.exists()


def test_a_tool_without_types_is_refused_in_words() -> None:
    source = 'def act(x):\n    """Act."""\n    return x\n'
    answer = save(fields("python_tool", **{"c0-p_source": source}), admin())
    assert answer.status_code == 422
    assert "The argument x of act has no type" in answer.content.decode().replace("&#x27;", "'")


def test_an_operator_may_not_add_code_and_may_use_what_an_admin_saved() -> None:
    assert "Only an admin can add or change code" in save(fields("python_tool")).content.decode()
    save(fields("python_tool"), admin())
    assert save(fields("python_tool", name="again")).status_code == 302
    assert save(fields("python_tool", name="other", **{"c0-p_source": OTHER})).status_code == 422


def test_only_an_admin_gets_a_row_for_code() -> None:
    assert operator().get("/environments/part/?function=python_tool").status_code == 404
    assert admin().get("/environments/part/?function=python_tool").status_code == 200
    assert operator().get("/environments/part/?function=calculator").status_code == 200


def test_a_change_makes_a_version_and_the_same_again_makes_none() -> None:
    version = an_environment()
    to = f"{version.environment_id}/"
    same = fields("calculator", name="sums", **{"c0-name": "calculator", "based_on": "1"})
    save(same, to=to)
    assert version.environment.versions.count() == 1
    save(same | {"limits-turns": "3", "note": "Shorter"}, to=to)
    newest = version.environment.newest()
    assert (newest.number, newest.note, newest.episode_limits.turns) == (2, "Shorter", 3)


def test_a_version_saved_meanwhile_is_not_overwritten_unseen() -> None:
    version = an_environment()
    saving.save(version.environment, EnvironmentComposition([CALCULATOR], {"turns": 2}))
    sent = fields("calculator", name="sums", **{"based_on": "1", "limits-turns": "9"})
    answer = save(sent, to=f"{version.environment_id}/")
    assert "has saved version 2 since you opened version 1" in answer.content.decode()
    assert version.environment.versions.count() == 2


def test_the_versions_page_shows_what_changed() -> None:
    version = an_environment()
    changed = [
        CALCULATOR | {"params": {"digits": 3}},
        {"name": "python", "function": "python_interpreter", "params": {}},
    ]
    saving.save(version.environment, EnvironmentComposition(changed, {"turns": 2}))
    page = viewer().get(f"/environments/{version.environment_id}/versions/").content.decode()
    assert "calculator digits" in page
    assert "Python interpreter" in page
    assert "turns" in page


def test_a_name_is_shown_as_text() -> None:
    version = an_environment("<script>alert(1)</script>")
    for path in (
        "",
        f"{version.environment_id}/",
        f"{version.environment_id}/versions/",
        f"{version.environment_id}/v1/",
    ):
        assert b"<script>alert" not in viewer().get(f"/environments/{path}").content


def test_an_archived_environment_is_hidden_and_can_not_be_changed() -> None:
    version = an_environment()
    operator().post(f"/environments/{version.environment_id}/archive/")
    assert b"sums" not in viewer().get("/environments/").content
    assert b"sums" in viewer().get("/environments/?archived=1").content
    answer = save(fields("calculator", name="sums", **{"limits-turns": "2"}), to=f"{version.environment_id}/")
    assert "This environment is archived" in answer.content.decode()


def test_the_preview_shows_the_tools_as_the_model_sees_them() -> None:
    page = operator().post("/environments/preview/", fields("calculator", **{"c0-name": "work_out"})).content.decode()
    assert "work_out" in page
    assert "Calculate the value of an arithmetic expression." in page


def test_the_preview_that_nobody_asked_for_opens_only_what_costs_nothing() -> None:
    client = operator()
    page = client.post("/environments/preview/?unasked=1", fields("calculator")).content.decode()
    assert "Calculate the value of an arithmetic expression." in page
    page = client.post("/environments/preview/?unasked=1", fields("calculator", "python_interpreter")).content.decode()
    assert "This starts the sandbox or calls a server for python_interpreter_1." in page
    assert "Calculate the value" not in page


def test_a_version_shows_what_the_model_sees_where_that_costs_nothing() -> None:
    sandboxed = {"name": "python", "function": "python_interpreter", "params": {}}
    for version, seen in ((an_environment(), True), (an_environment("code", [sandboxed]), False)):
        page = viewer().get(f"/environments/{version.environment_id}/").content.decode()
        assert ("What the model sees" in page) == seen
        assert ("Calculate the value of an arithmetic expression." in page) == seen


def test_the_check_of_an_own_tool_shows_its_schema_or_what_is_wrong() -> None:
    client = admin()
    sent = fields("python_tool")
    assert "word_count" in client.post("/environments/tool/?of=c0", sent).content.decode()
    wrong = client.post("/environments/tool/?of=c0", sent | {"c0-p_source": "x = 1"}).content.decode()
    assert "It defines no function" in wrong


def test_what_is_exported_comes_back_as_it_was() -> None:
    version = an_environment(limits={"turns": 3, "count_outputs": False}, description="what: it is")
    document = viewer().get(f"/environments/{version.environment_id}/v1/yaml/").content
    version.environment.delete()
    editor = config_yaml.read(document)
    assert editor.is_valid(), [editor.problem, editor.wrong]
    again, _ = editor.save(None)
    assert (again.parts, again.limits) == (version.parts, version.limits)
    assert again.environment.description == "what: it is"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("parts:\n- function: nothing", "there is no entry nothing in the library"),
        ("parts:\n- function: calculator\n  params: {digits: many}", "must be a number"),
        ("parts: 3", "expected a list"),
        ("limits: {turns: lots}\nparts:\n- function: calculator", "expected a number"),
        ("limits: {turn: 3}\nparts:\n- function: calculator", "limits.turn: unknown field"),
        ("name: 3\nparts:\n- function: calculator", "expected a string"),
        ("- 1", "This is not an environment"),
    ],
)
def test_a_document_with_mistakes_opens_with_them_and_saves_nothing(document: str, words: str) -> None:
    answer = operator().post("/environments/import/", {"text": document})
    assert answer.status_code == 422
    assert words in answer.content.decode().replace("&#x27;", "'")
    assert not Environment.objects.exists()
