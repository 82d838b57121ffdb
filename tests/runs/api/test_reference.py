"""The API's reference among the pages of the help."""

from __future__ import annotations

import pytest
from django.utils.html import escape

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
    assert "launched" in sent["Answer 200, 201"]


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
