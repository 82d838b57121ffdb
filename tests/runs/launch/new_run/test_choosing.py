"""What New run chooses by itself, how it ranks profiles, and how long it takes the database."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.shipped import by_slug
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import Role
from tests.controlplane.people import signed_in
from tests.datasets import ready_version
from tests.runs.builders import a_host, rewards_named
from tests.runs.launch.new_run.launching_page import a_ready_host, sent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

ROWS = [{"prompt": "1+1?", "answer": "2"}] * 8


@pytest.fixture
def client() -> Client:
    return signed_in(Role.OPERATOR)


def chosen(client: Client, address: str = "/runs/new/") -> dict[str, str]:
    form = client.get(address).context["form"]
    names = ("model", "dataset_version", "reward_version", "profile")
    return {name: str(form[name].value() or "") for name in names}


def name_of(profile: str) -> str:
    return str(HardwareProfile.objects.get(pk=int(profile)))


def options(client: Client) -> list[tuple[str, list[str]]]:
    """The groups of the select with the labels of their profiles."""
    field = client.get("/runs/new/").context["form"].fields["profile"]
    return [(group, [label for _, label in members]) for group, members in field.choices[1:]]


def test_what_there_is_only_one_of_is_chosen_and_everything_else_is_left_open(client: Client) -> None:
    ready_version("sums", ROWS)
    newest = ready_version("sums", ROWS[:4])
    rewards = rewards_named("tags")
    a_ready_host()
    found = chosen(client)
    assert (found["dataset_version"], found["reward_version"]) == (str(newest.pk), str(rewards.pk))
    assert name_of(found["profile"]) == "CPU"
    ready_version("products", ROWS)
    rewards_named("others")
    assert (chosen(client)["dataset_version"], chosen(client)["reward_version"]) == ("", "")


def test_a_link_that_has_chosen_is_followed(client: Client) -> None:
    first = ready_version("sums", ROWS)
    ready_version("sums", ROWS[:4])
    assert chosen(client, f"/runs/new/?dataset_version={first.pk}")["dataset_version"] == str(first.pk)


def test_profiles_are_grouped_by_gpus_and_memory_and_say_whether_they_fit(client: Client) -> None:
    a_host("h2", gpus=2, inventory=a_host("other", gpus=2).inventory | {"versions": {"vllm": "0.31.0"}})
    groups = dict(options(client))
    assert f"{by_slug('dual-gpu').name} · fits h2, other" in groups["2 GPUs with 24 GiB"]
    assert groups["3 GPUs with 24 GiB"] == [f"{by_slug('three-gpus').name} · needs 1 more GPU"]
    assert f"{by_slug('seven-plus-one-zero3').name} · needs 6 more GPUs" in groups["8 GPUs with 40 GiB"]
    order = [group for group, _ in options(client)]
    assert order.index("2 GPUs with 24 GiB") < order.index("3 GPUs with 24 GiB")


def test_the_panel_brings_the_labels_for_a_changed_model(client: Client) -> None:
    a_host("h1", gpus=1)
    panel = client.post("/runs/new/check", {"model": "/m"}).content.decode()
    fits = json.loads(re.search(r'<script id="fits" type="application/json">(.*?)</script>', panel)[1])
    assert set(fits) == {str(row.pk) for row in HardwareProfile.objects.all()}
    assert any(label.endswith("needs 7 more GPUs") for label in fits.values())


def test_the_launch_button_says_what_is_missing(client: Client) -> None:
    a_ready_host()
    open_ = client.post("/runs/new/check", sent(model=None, dataset_version=None)).content.decode()
    assert "data-blocked" in open_
    assert "Choose a model and 1 more to launch" in open_
    assert "Fix 1 problem to launch" in client.post("/runs/new/check", sent(beta="x")).content.decode()


def test_a_long_catalogue_takes_no_more_queries(client: Client, django_assert_max_num_queries) -> None:
    a_ready_host()
    client.get("/runs/new/")
    for number in range(12):
        ready_version(f"set {number}", ROWS)
        rewards_named(f"rewards {number}")
        HardwareProfile.objects.create(name=f"own {number}", spec={"rollout": "transformers", "cpu_slots": 1})
    assert DatasetVersion.objects.count() == RewardVersion.objects.count() == 12
    with django_assert_max_num_queries(45):
        client.get("/runs/new/")
