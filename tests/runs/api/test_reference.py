"""The API's reference among the pages of the help."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.utils.html import escape
from ninja import Schema

from runs.api import application
from runs.api.reference_views import groups
from tests.controlplane.people import viewer

pytestmark = pytest.mark.django_db


def test_the_reference_page_has_each_operation_with_the_fields_of_its_body_and_answer():
    page = viewer().get("/help/api/").content.decode()
    described = application.description()["paths"]
    for path, methods in described.items():
        for method, operation in methods.items():
            assert f'<span class="method">{method.upper()}</span> {path}</code>' in page
            assert escape(operation["summary"]) in page
    [launch] = [each for group in groups() for each in group.operations if each.title == "Launch a run"]
    sent = {part.title: [field.name for field in part.fields] for part in launch.parts}
    assert sent["Headers"] == ["Idempotency-Key"]
    assert "priority" in sent["Body"]
    assert "launched" in sent["Response 200, 201"]


def test_every_parameter_of_a_query_has_its_sentence():
    fields = [
        (each.path, field.name, field.about)
        for group in groups()
        for each in group.operations
        for part in each.parts
        if part.title == "Query"
        for field in part.fields
    ]
    assert fields
    assert [field for field in fields if not field[2].endswith(".")] == []


def test_every_field_of_an_answer_has_its_sentence():
    description = application.description()
    schemas, paths = description["components"]["schemas"], description["paths"]
    told = set[str]()
    left = _named([operation["responses"] for methods in paths.values() for operation in methods.values()])
    while left:
        told |= left
        left = _named([schemas[name] for name in left]) - told
    fields = {(name, *field) for name in told for field in _sentences(schemas[name])}
    assert len(fields) > 100
    assert sorted(field for field in fields if not field[2].endswith(".")) == []


def test_no_two_shapes_share_a_name():
    """The description has one schema of a name: another one would be told as that."""
    names = [shape.__name__ for shape in _below(Schema) if shape.__module__.startswith("runs.api")]
    assert sorted(names) == sorted(set(names))


def _named(part: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(part)))


def _sentences(schema: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, field.get("description", "")) for name, field in schema.get("properties", {}).items()]


def _below(shape: type[Schema]) -> set[type[Schema]]:
    return {each for one in shape.__subclasses__() for each in (one, *_below(one))}
