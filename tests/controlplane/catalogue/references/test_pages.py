"""The pages of checks of reference answers: starting one, following it, reading and using its result."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.references import worker
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import Busy
from tests.controlplane.catalogue.datasets.steps import ready
from tests.controlplane.catalogue.references.test_checks import ASKS, FORM, MAPPING, NUMBERS, TAG
from tests.controlplane.people import operator, viewer

pytestmark = [pytest.mark.django_db, pytest.mark.processes]


@pytest.fixture
def client() -> Client:
    return operator()


def started(client: Client, *components: dict[str, object]) -> tuple[ReferenceCheck, str]:
    version = ready([*NUMBERS, {"question": "odd?", "answer": "<b>none</b>"}], MAPPING)
    rewards = saving.make("config", list(components))
    answer = client.post("/datasets/references/", {"dataset_version": version.pk, "reward_version": rewards.pk})
    return ReferenceCheck.objects.get(), answer["Location"]


def test_a_check_is_followed_to_its_end_and_says_what_fails(client):
    check, address = started(client, TAG, FORM)
    waiting = client.get(address, headers={"HX-Request": "true"})
    assert (waiting.status_code, "Waiting for the background worker" in waiting.content.decode()) == (200, True)
    worker.score_waiting()
    ended = client.get(address, headers={"HX-Request": "true"})
    assert ended.status_code == 286
    page = client.get(address).content.decode()
    version = check.dataset_version
    for words in (
        "1 of the 6 answers that were checked fail",
        "form only",
        "&lt;b&gt;none&lt;/b&gt;",
    ):
        assert words in page
    assert f"/datasets/{version.dataset_id}/{version.number}/rows/5/" in page
    assert "1 of the 6" in viewer().get(address + "?component=right&page=9").content.decode()


def test_the_rows_that_fail_are_left_out_by_a_button(client):
    check, address = started(client, TAG)
    early = client.post(f"{address}leave-out/", follow=True).content.decode()
    assert "The check is still running" in early
    worker.score_waiting()
    answer = client.post(f"{address}leave-out/")
    derived = DatasetVersion.objects.get(parent=check.dataset_version)
    assert answer["Location"] == derived.get_absolute_url()


def test_a_check_can_be_stopped(client):
    _, address = started(client, TAG)
    page = client.post(f"{address}stop/", follow=True).content.decode()
    assert "then it was stopped" in page
    assert "The check had already ended" in client.post(f"{address}stop/", follow=True).content.decode()


def test_the_form_says_what_cannot_be_checked(client):
    version = ready(NUMBERS, MAPPING)
    rewards = saving.make("config", [ASKS])
    answer = client.post("/datasets/references/", {"dataset_version": version.pk, "reward_version": rewards.pk})
    assert (answer.status_code, "can score an answer here" in answer.content.decode()) == (422, True)
    assert client.post("/datasets/references/", {"dataset_version": "x", "reward_version": "9" * 30}).status_code == 422


def test_pages_of_datasets_and_rewards_lead_to_the_form_with_their_own_choice(client):
    version, rewards = ready(NUMBERS, MAPPING), saving.make("config", [TAG])
    assert (
        f"/datasets/references/?dataset_version={version.pk}" in client.get(version.get_absolute_url()).content.decode()
    )
    assert (
        f"/datasets/references/?reward_version={rewards.pk}"
        in client.get(f"/rewards/{rewards.config_id}/").content.decode()
    )
    page = client.get(
        "/datasets/references/", {"dataset_version": version.pk, "reward_version": rewards.pk}
    ).content.decode()
    assert f'<option value="{version.pk}" selected>' in page
    assert f'<option value="{rewards.pk}" selected>' in page


def test_an_ended_check_is_shown_in_full_while_the_server_is_busy(client, monkeypatch):
    _, address = started(client, TAG, FORM)
    worker.score_waiting()
    shown = client.get(address).content.decode().partition("<tbody>")[2]
    monkeypatch.setattr(checking, "problems", busy)
    again = client.get(address).content.decode().partition("<tbody>")[2]
    assert "form only" in again
    assert again == shown


def busy(*_: object) -> list[str]:
    raise Busy("Checking these parameters")
