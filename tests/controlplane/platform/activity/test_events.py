"""The Events page and its list in the API: who sees what, filters, paging."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from controlplane.platform.accounts.models import ApiScope, Role, User
from controlplane.platform.activity.models import Act
from tests.controlplane.people import make_user, signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def an_act(what: str, *, by: User | None = None, kind: str = "run", name: str = "sums", **columns: object) -> Act:
    who = {"by": by, "by_name": by.get_username() if by else "somebody"}
    return Act.objects.create(**{"kind": kind, "name": name, "what": what, "at": NOON, **who, **columns})


def page(role: Role = Role.ADMIN, **query: str) -> str:
    return signed_in(role).get(reverse("events"), query).content.decode()


def test_an_admin_sees_everything_and_others_what_they_may_see_or_did_themselves() -> None:
    viewer = make_user(Role.VIEWER)
    an_act("Stored another key", kind="secret")
    an_act("Disabled the account", kind="user")
    an_act("Launched", kind="run")
    an_act("Set a password", kind="user", by=viewer)
    assert all(
        words in page() for words in ("Stored another key", "Disabled the account", "Launched", "Set a password")
    )
    seen = signed_in(user=viewer).get(reverse("events")).content.decode()
    assert "Launched" in seen
    assert "Set a password" in seen
    assert "Stored another key" not in seen
    assert "Disabled the account" not in seen
    assert '<option value="secret">' not in seen


@pytest.mark.parametrize(
    "query",
    [
        {"by": "ana"},
        {"kind": "dataset"},
        {"q": "gsm DELE"},
        {"since": "2026-03-06"},
        {"until": "2026-03-06", "by": "ana"},
        {"kind": "dataset", "key": "7"},
    ],
)
def test_each_filter_narrows(query: dict[str, str]) -> None:
    an_act("Launched")
    an_act("Deleted", kind="dataset", name="gsm8k", by=make_user(name="ana"), key="7", at=NOON + timedelta(days=1))
    found = page(**query)
    assert "gsm8k" in found
    assert "Launched" not in found


def test_a_date_that_is_none_is_said_and_filters_nothing() -> None:
    an_act("Launched")
    found = page(since="yesterday")
    assert "Enter a valid date." in found
    assert "Launched" in found


def test_an_end_before_its_start_is_said_and_filters_nothing() -> None:
    an_act("Launched")
    found = page(since="2026-03-05", until="2026-03-04")
    assert "To: This day is before “From”." in found
    assert "Launched" in found


def test_an_object_that_is_there_is_linked_and_a_deleted_one_is_named() -> None:
    run = a_run()
    an_act("Launched", key=run.pk, name="here")
    an_act("Deleted", key="rgone", name="gone")
    found = page()
    assert f'<a href="{reverse("run", args=[run.pk])}">here</a>' in found
    assert "gone" in found
    assert "rgone" not in found


def test_pages_follow_each_other_and_a_cut_cursor_begins_anew(django_assert_max_num_queries: object) -> None:
    for number in range(60):
        an_act(f"Act {number:02}", at=NOON + timedelta(minutes=number))
    client = signed_in(Role.ADMIN)
    with django_assert_max_num_queries(8):  # type: ignore[operator]
        first = client.get(reverse("events"), {"kind": "run"})
    assert "Act 59" in first.content.decode()
    assert "Act 09" not in first.content.decode()
    older = client.get(reverse("events"), {"kind": "run", "cursor": first.context["older"]}).content.decode()
    assert "Act 09" in older
    assert "Act 10" not in older
    assert "Act 59" in client.get(reverse("events"), {"kind": "run", "cursor": "nonsense"}).content.decode()


def test_the_csv_has_what_the_filters_find_and_no_formula() -> None:
    an_act("Launched", name="=1+1")
    an_act("Deleted", kind="dataset")
    answer = signed_in(Role.ADMIN).get(reverse("events_csv"), {"kind": "run"})
    heading, *rows = csv.reader(io.StringIO(answer.content.decode()))
    assert heading == ["at", "by", "token", "kind", "id", "name", "what"]
    assert [row[-2:] for row in rows] == [["'=1+1", "Launched"]]


def test_the_api_lists_them_by_cursor_for_the_role_of_its_token() -> None:
    host = a_host()
    an_act("Stored another key", kind="secret")
    an_act("Paused new runs", kind="host", key=str(host.pk), name=host.name)
    an_act("Launched", at=NOON + timedelta(minutes=1))
    reader = Program(ApiScope.READ, user=make_user(Role.ADMIN))  # no more than its scope
    first = reader.get("events", limit=1).json()
    assert [item["what"] for item in first["items"]] == ["Launched"]
    second = reader.get("events", limit=5, cursor=first["next_cursor"]).json()["items"]
    assert [(item["what"], item["page"]) for item in second] == [("Paused new runs", reverse("hardware"))]
    assert Program(ApiScope.ADMIN).get("events", kind="secret").json()["items"][0]["what"] == "Stored another key"
    assert reader.get("events", kind="nonsense").status_code == 422
