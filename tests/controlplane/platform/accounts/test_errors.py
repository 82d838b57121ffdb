from __future__ import annotations

import pytest
from django.test import Client, RequestFactory

from controlplane.platform.http import errors
from tests.controlplane.people import viewer


def test_a_server_error_is_drawn_without_touching_the_database():
    answer = errors.server_error(RequestFactory().get("/runs/"))
    assert answer.status_code == 500
    assert b"Something went wrong on our side" in answer.content
    assert b"Traceback" not in answer.content


@pytest.mark.parametrize(
    ("handler", "status"),
    [(errors.bad_request, 400), (errors.forbidden, 403), (errors.not_found, 404), (errors.server_error, 500)],
)
def test_programs_get_errors_in_one_shape(handler, status):
    answer = handler(RequestFactory().get("/api/x"))
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/json"
    assert b'{"error": {"what": ' in answer.content


@pytest.mark.django_db
def test_a_page_that_is_not_there_says_so_to_everybody():
    for client in (Client(), viewer()):
        answer = client.get("/nothing/<script>alert(1)</script>")
        assert answer.status_code == 404
        assert b"There is nothing at this address" in answer.content
        assert b"<script>alert" not in answer.content


@pytest.mark.django_db
def test_an_error_page_says_what_to_do_and_where_one_can_go():
    client = viewer()
    missing = client.get("/datasets/999/").content.decode()
    assert 'href="/datasets/">All datasets' in missing
    assert 'href="/runs/">All runs' in missing
    assert "There is no run rnowhere." in client.get("/runs/rnowhere/").content.decode()
    refused = client.get("/datasets/upload/").content.decode()
    assert "This requires the operator role" in refused
    assert "role: viewer" in refused
    assert 'href="/datasets/">All datasets' in refused
    failed = errors.server_error(RequestFactory().get("/runs/?q=a")).content.decode()
    assert 'href="/runs/?q=a">Try again' in failed
    assert 'href="/runs/"' not in failed  # it has just failed
    assert "Try again" not in errors.server_error(RequestFactory().post("/runs/stop")).content.decode()


@pytest.mark.django_db
def test_a_crash_in_a_view_becomes_the_error_page(monkeypatch):
    client = viewer()
    client.raise_request_exception = False
    monkeypatch.setattr("controlplane.catalogue.datasets.pages.views.listing", lambda request: 1 / 0)
    answer = client.get("/datasets/")
    assert answer.status_code == 500
    assert b"ZeroDivisionError" not in answer.content
    assert "Content-Security-Policy" in answer


@pytest.mark.django_db
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_a_name_that_is_not_ours_is_told_where_names_are_listed(accept):
    answer = Client().get("/sign-in/", headers={"Host": "box.lan:8000", "Accept": accept})
    assert answer.status_code == 400
    assert "“box.lan”" in (answer.json()["error"]["what"] if "json" in accept else answer.content.decode())
    assert b"CONTROLPLANE_HOSTS" in answer.content


@pytest.mark.django_db
def test_a_name_is_shown_as_text():
    answer = Client().get("/sign-in/", headers={"Host": "<script>alert(1)</script>"})
    assert answer.status_code == 400
    assert b"<script>alert" not in answer.content
