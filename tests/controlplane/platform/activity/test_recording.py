"""What people do is recorded once, wherever they do it; what nobody asked for is not."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth import authenticate
from django.test import Client
from django.urls import reverse

from controlplane.catalogue.datasets.models import Dataset
from controlplane.platform.accounts.models import ApiScope, Role, User
from controlplane.platform.activity import queries, recording
from controlplane.platform.activity.models import KINDS, Act
from runs.engine import tags
from tests.controlplane.people import admin, make_user, signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt

pytestmark = pytest.mark.django_db


def told() -> list[tuple[str, str, str, str]]:
    """(who, kind, name, what), the newest first, without signing in."""
    acts = Act.objects.exclude(kind="session")
    return list(acts.values_list("by_name", "kind", "name", "what"))


def test_a_role_and_the_disabling_of_an_account() -> None:
    admin, ana = make_user(Role.ADMIN), make_user(name="ana")
    client = signed_in(user=admin)
    client.post(reverse("user_edit", args=[ana.pk]), {"role": "operator"})
    client.post(reverse("user_active", args=[ana.pk]), {"active": "0"})
    who = admin.get_username()
    assert told() == [
        (who, "user", "ana", "Disabled the account"),
        (who, "user", "ana", "Changed the role from viewer to operator"),
    ]


def test_saving_what_is_there_already_is_no_act() -> None:
    ana = make_user(name="ana")
    signed_in(Role.ADMIN).post(reverse("user_edit", args=[ana.pk]), {"role": ana.role})
    assert told() == []


def test_the_timeline_of_a_run_is_told_when_a_person_writes_it() -> None:
    attempt = an_attempt()
    tags.tag([attempt.run_id], make_user(), add=["math"], remove=[])  # outside of a request
    assert told() == []
    operator = make_user(Role.OPERATOR)
    signed_in(user=operator).post(reverse("run_stop", args=[attempt.run_id]), {"mode": "now"})
    assert told() == [(operator.get_username(), "run", attempt.run.name, "Asked to stop now")]


def test_the_api_is_told_of_with_its_token() -> None:
    host, program = a_host(), Program(ApiScope.OPERATE)
    program.patch(f"hosts/{host.pk}", {"draining": True})
    act = Act.objects.get(kind="host")
    assert (act.by_id, act.token, act.key, act.what) == (program.user.pk, "a program", str(host.pk), "Paused new runs")


def test_deleting_and_restoring_are_acts_that_outlive_their_author() -> None:
    dataset, operator = Dataset.objects.create(name="sums"), make_user(Role.OPERATOR)
    dataset.versions.create(number=1, file_name="sums.csv")
    client = signed_in(user=operator)
    client.post(reverse("delete", args=["dataset"]), {"id": dataset.pk})
    client.post(reverse("restore", args=["dataset", dataset.pk]))
    client.post(reverse("rename", args=["dataset", dataset.pk]), {"name": "more sums"})
    name = operator.get_username()
    User.objects.filter(pk=operator.pk).delete()
    assert told() == [
        (name, "dataset", "more sums", "Renamed from “sums”"),
        (name, "dataset", "sums", "Restored"),
        (name, "dataset", "sums", "Deleted"),
    ]


def test_archiving_is_told_of_once() -> None:
    config, client = a_run().reward_version.config, signed_in(Role.OPERATOR)
    for _ in range(2):
        client.post(reverse("reward_config_archive", args=[config.pk]))
    assert [what for *_, what in told()] == ["Archived"]


def test_signing_in_and_out() -> None:
    client = signed_in(Role.VIEWER)
    client.post(reverse("sign_out"))
    assert [act.what for act in Act.objects.filter(kind="session")] == ["Signed out", "Signed in"]


def test_a_failed_sign_in_is_recorded_by_the_name_tried_and_a_flood_is_not() -> None:
    for address in ("10.0.0.1", "10.0.0.2"):  # of one name the first
        Client(REMOTE_ADDR=address).post(reverse("sign_in"), {"username": "ann", "password": "no"})
    refused = Act.objects.get()
    assert (refused.by_name, refused.name, refused.what) == ("", "ann", "Failed to sign in from 10.0.0.1")
    for n in range(2 * recording.MAX_FAILED):
        authenticate(None, username=f"guess {n}", password="no")
    assert Act.objects.count() == recording.MAX_FAILED
    assert Act.objects.latest("pk").what.endswith("are not listed")
    page = admin().get(reverse("events")).content.decode()
    assert "guess 1" in page
    assert page.count("not signed in") == recording.MAX_FAILED
    assert "" not in queries.people(make_user(Role.ADMIN))
    assert "guess 1" not in signed_in(Role.VIEWER).get(reverse("events")).content.decode()


def test_every_kind_has_a_model_and_a_page() -> None:
    for kind in KINDS.values():
        assert apps.get_model(kind.model)
        assert reverse(kind.route, args=["1"] if kind.own_page else [])
