"""Pages of an installation that has nothing yet: each says so in a card, where its rows will stand."""

from __future__ import annotations

import re

import pytest

from tests.controlplane.people import admin

pytestmark = pytest.mark.django_db

PATHS = (
    "/runs/",
    "/runs/compare/",
    "/datasets/",
    "/rewards/",
    "/environments/",
    "/hardware/",
    "/settings/alerts/",
    "/settings/secrets/",
)


def test_what_a_page_is_for_is_said_where_its_rows_will_be(subtests: pytest.Subtests) -> None:
    for path in PATHS:
        with subtests.test(path=path):
            page = admin().get(path).content.decode()
            assert re.search(r'<section class="card"[^>]*>\s*<div class="empty"', page)


def test_a_page_without_javascript_says_what_stays_empty() -> None:
    page = admin().get("/runs/").content.decode()
    assert re.search(r"<noscript>.*JavaScript is off. .*</noscript>", page)
