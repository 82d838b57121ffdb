"""A reward config as a YAML document: there and back, and what is wrong with one from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.catalogue.rewards import config_yaml, saving
from controlplane.catalogue.rewards.models import NORMALIZE_THEN_SUM, RewardConfig
from controlplane.catalogue.rewards.saving import RewardComposition
from controlplane.catalogue.versioned import parts_yaml
from controlplane.platform.safe_yaml import YamlRefused
from tests.controlplane.people import operator, viewer

pytestmark = pytest.mark.django_db

SCHEMA = '{\n  "type": "object"\n}\n'
PARTS = [
    {"name": "right", "function": "numeric_match", "weight": 2.0, "params": {"tolerance": 0.5, "relative": True}},
    {"name": "json", "function": "json_valid", "weight": -0.25, "params": {"schema": SCHEMA}},
    {"name": "prints", "function": "same_output", "weight": 1.0, "params": {"standard_input": "1\n2\n"}},
    {"name": "yes", "function": "think_tags", "weight": 1.0, "params": {"tag": "off", "needs_text_after": False}},
]
GOOD = "name: n\ncomponents:\n- function: length\n"


def read(text: str) -> Any:
    return config_yaml.read(text.encode())


def errors(text: str) -> str:
    editor = read(text)
    said = [editor.problem, *(str(form.errors) for form in (editor.form, *editor.rows))]
    return " ".join(said)


def test_what_is_exported_comes_back_as_it_was() -> None:
    version = saving.make("mine", RewardComposition(PARTS, NORMALIZE_THEN_SUM, 0.1), description="what: it is")
    document = config_yaml.export(version)
    RewardConfig.objects.all().delete()
    editor = config_yaml.read(document.encode())
    assert editor.is_valid(), [editor.problem, [form.errors for form in editor.rows]]
    saved, _ = editor.save(None)
    assert RewardComposition.of(saved).same_as(_with_defaults(PARTS))
    assert (saved.config.name, saved.config.description) == ("mine", "what: it is")


def _with_defaults(parts: list[dict[str, Any]]) -> RewardComposition:
    from workers.rewards.library import LIBRARY

    full = [{**part, "params": LIBRARY[part["function"]].defaults() | part["params"]} for part in parts]
    return RewardComposition(full, NORMALIZE_THEN_SUM, 0.1)


def test_lines_are_written_as_lines() -> None:
    document = config_yaml.export(saving.make("mine", PARTS))
    assert "schema: |\n" in document


def test_what_is_left_out_is_the_default() -> None:
    editor = read(GOOD)
    assert editor.is_valid()
    [part] = editor.composition().components
    assert (part["name"], part["weight"], part["params"]["target"]) == ("length", 1.0, 200)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: n\nweights: 3\n", "weights: unknown field"),
        ("name: 7\ncomponents: []\n", "name: expected a string, got 7; put it in quotes"),
        ("name: n\naggregation: mean\n", "Select a valid choice"),
        ("name: n\nfailed_share: much\n", "failed_share: expected a number, got much"),
        ("name: n\ncomponents: 5\n", "components: expected a list, got 5"),
        ("name: n\ncomponents: [7]\n", "components[0]: expected name, function"),
        ("name: n\ncomponents: [{name: x}]\n", "there is no reward None in the library"),
        ("name: n\ncomponents: [{function: os.system}]\n", "there is no reward os.system in the library"),
        ("name: n\ncomponents: [{function: length, wieght: 3}]\n", "components[0].wieght: unknown field"),
        ("name: n\ncomponents: [{function: length, weight: a}]\n", "components[0].weight: expected a number, got a"),
        ("name: n\ncomponents: [{function: length, weight: true}]\n", "expected a number, got True"),
        ("name: n\ncomponents: [{function: length, params: 3}]\n", "components[0].params: expected a mapping, got 3"),
        ("name: n\ncomponents: [{function: length, params: {aim: 3}}]\n",
         "components[0].params: aim: Length has no such parameter; its parameters are unit, target"),
        ("name: n\ncomponents: [{function: length, params: {target: 1.5}}]\n", "target: must be a whole number"),
        ("name: n\ncomponents: [{function: length, params: {unit: miles}}]\n", "must be one of "),
        ("name: n\ncomponents: [{function: think_tags, params: {tag: 5}}]\n", "must be a string, not 5."),
        ("name: n\ncomponents: [{function: think_tags, params: {partial: x}}]\n", "partial: must be true or false"),
        ("name: n\ncomponents: [{function: regex_match, params: {pattern: '('}}]\n", "attern"),
        ("name: n\ncomponents: [{function: json_valid, params: {schema: '{'}}]\n", "chema"),
        ("name: n\ncomponents:\n" + "- {function: length}\n" * 30, "only the first 24 of 30 are used"),
        ("name: n\n", "Add at least one component"),
        ("name: n\ncomponents: [{function: length}, {function: length}]\n", "Another component has this name"),
        ("name: n\ncomponents: [{function: length, weight: 0}]\n", "Every weight is 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_document_is_said(text: str, said: str) -> None:
    assert said in errors(text)


def test_what_is_no_reward_config_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["", "- 1", "5", "what: 1", "a: &x 1", "{", "name: !!python/object:os.system x"]:
        with subtests.test(text=text), pytest.raises(YamlRefused):
            read(text)


def test_too_large_a_document_is_refused() -> None:
    with pytest.raises(YamlRefused, match="larger than 512\N{NO-BREAK SPACE}KiB"):
        config_yaml.read(b"#" * (parts_yaml.MAX_BYTES + 1))


def test_a_document_is_read_into_the_editor_and_nothing_is_saved() -> None:
    client = operator()
    file = SimpleUploadedFile("r.yaml", GOOD.encode())
    answer = client.post("/rewards/import/", {"file": file})
    assert (answer.status_code, b"Nothing is saved yet" in answer.content) == (200, True)
    assert b'action="/rewards/new/"' in answer.content
    assert client.post("/rewards/import/", {"text": "name: n\n"}).status_code == 422
    assert b"Choose a file, or paste" in client.post("/rewards/import/", {}).content
    assert not RewardConfig.objects.exists()


def test_anybody_takes_a_version_away_as_yaml() -> None:
    version = saving.make("Right & in form", PARTS)
    answer = viewer().get(f"/rewards/{version.config_id}/v1/yaml/")
    assert answer["Content-Disposition"] == 'attachment; filename="right-in-form-v1.yaml"'
    assert answer.content.decode() == config_yaml.export(version)
    assert viewer().get(f"/rewards/{version.config_id}/v2/yaml/").status_code == 404


def test_an_operator_brings_no_code_in_a_document() -> None:
    text = "name: n\ncomponents:\n- function: python\n"
    sent = read(text).form.data
    answer = operator().post("/rewards/new/", sent)
    assert (answer.status_code, b"Only an admin can add or change code" in answer.content) == (422, True)
