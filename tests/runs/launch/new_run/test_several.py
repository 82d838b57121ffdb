"""Several runs from one form: seeds and a grid, all or none of them, with a bound on how many run at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from runs.engine.models import Attempt, Run, RunGroup
from runs.engine.scheduling import dispatching, ending
from runs.engine.states import RunStatus
from runs.launch.new_run.fields import grid as grids
from runs.launch.new_run.forms import LaunchForm
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.wire.names import EndReason

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(settings: Settings) -> Client:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    a_ready_host(cpu_slots=9)
    return operator()


def launched(client: Client, **changes: Any) -> Any:
    return client.post("/runs/new/", sent(**changes))


def grid(**of: str) -> str:
    return "\n".join(f"{name}: {values}" for name, values in of.items())


def test_a_grid_and_seeds_make_every_combination_and_lead_to_their_comparison(client: Client) -> None:
    answer = launched(client, name="sums", seed="7", seeds="2", grid=grid(learning_rate="1e-6, 5e-6"), at_once="3")
    runs = list(Run.objects.order_by("created_at", "pk"))
    assert answer["Location"] == f"/runs/compare/?runs={','.join(run.pk for run in runs)}"
    made = {(run.spec["grpo"]["learning_rate"], run.spec["grpo"]["seed"]) for run in runs}
    assert made == {(1e-6, 7), (1e-6, 8), (5e-6, 7), (5e-6, 8)}
    assert {run.name for run in runs} >= {"sums, learning rate 1e-6, seed 7", "sums, learning rate 5e-6, seed 8"}
    (group,) = RunGroup.objects.all()
    assert {(run.group, tuple(run.tags)) for run in runs} == {(group, (group.tag,))}
    assert "4 runs launched." in client.get(answer["Location"]).content.decode()
    assert group.at_once == 3


def test_preflight_says_how_many_runs_are_launched(client: Client) -> None:
    page = client.post("/runs/new/check", sent(seed="7", seeds="2", grid=grid(beta="0, 0.1"))).content.decode()
    assert re.search(r"<dt>β, KL weight</dt><dd>0, 0.1</dd>.*<dt>Seed</dt><dd>7, 8</dd>", page, re.DOTALL)
    assert re.search(r"(Launch|Queue) 4 runs\s", page)
    bounded = client.post("/runs/new/check", sent(seeds="4", at_once="2")).content.decode()
    assert re.search(r"(Launch|Queue) 4 runs, 2 at a time\s", bounded)
    assert 'aria-label="The runs"' not in client.post("/runs/new/check", sent()).content.decode()


def causes(client: Client, **changes: Any) -> list[tuple[str, str, str]]:
    page = client.post("/runs/new/check", sent(**changes)).content.decode()
    found = r'data-field="(\w*)" data-grade="(\w+)".*?class="cause">(.*?)</span>'
    return re.findall(found, page, re.DOTALL)


GROUPS_OF_7 = "A generation makes 8 × 1 process × 1 = 8 completions, which is not a whole number of groups of 7."


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_generations": "7"}, ("num_generations", "stop", GROUPS_OF_7)),
        ({"num_generations": "7", "seeds": "2"}, ("num_generations", "stop", GROUPS_OF_7)),
        ({"grid": "num_generations: 8, 7"}, ("grid", "stop", f"With num generations 7: {GROUPS_OF_7}")),
        (
            {"grid": "num_generations: 8, 7\nbeta: 0, 0.1", "seeds": "2"},
            ("grid", "stop", f"With num generations 7: {GROUPS_OF_7}"),
        ),
        (
            {"grid": "per_device_train_batch_size: 8, 4\nnum_generations: 4, 8"},
            (
                "grid",
                "stop",
                "With per device train batch size 4, num generations 8: A generation makes 4 × 1 process × 1 = 4 "
                "completions, which is not a whole number of groups of 8.",
            ),
        ),
    ],
)
def test_preflight_says_what_the_launch_would_refuse(
    client: Client, changes: dict[str, str], says: tuple[str, str, str]
) -> None:
    stops = [cause for cause in causes(client, **changes) if cause[1] == "stop"]
    assert stops == [says]
    assert says[2] in launched(client, **changes).content.decode()
    assert not Run.objects.exists()


def test_a_setting_that_the_grid_replaces_stops_nothing(client: Client) -> None:
    changes = {"num_generations": "7", "grid": "num_generations: 4, 8"}
    assert not [cause for cause in causes(client, **changes) if cause[1] == "stop"]
    assert launched(client, **changes).status_code == 302


def test_preflight_says_that_the_queue_has_no_room_for_all(client: Client, settings: Settings) -> None:
    settings.MAX_QUEUED = 2
    ((_, grade, cause), *_) = causes(client, seeds="3")
    assert (grade, "may have 2; this would add 3." in cause) == ("stop", True)
    page = sent(seeds="2", key="page")
    assert client.post("/runs/new/", page)["Location"] == client.post("/runs/new/", page)["Location"]


def test_preflight_reads_each_line_of_the_grid_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    setting = grids._setting
    monkeypatch.setattr(grids, "_setting", lambda line: read.append(line) or setting(line))
    client.post("/runs/new/check", sent(grid="beta: 0, 0.1\nlearning_rate: 1e-6, 5e-6"))
    assert read == ["beta: 0, 0.1", "learning_rate: 1e-6, 5e-6"]


def test_every_listed_name_of_a_setting_is_one_that_the_grid_knows() -> None:
    form = LaunchForm(schema=SCHEMA)
    names = [name for name, _ in form.grid_names]
    assert {"learning_rate", "num_generations", "top_k"} <= set(names)
    assert not {"key", "name", "profile", "seeds"} & set(names)
    text = "\n".join(f"{name}: 1, 2" for name in names)
    bound = LaunchForm(sent(grid=text), schema=SCHEMA)
    assert not any("can’t vary" in error for error in bound.errors["grid"])


def test_the_same_page_sent_twice_launches_once(client: Client) -> None:
    page = sent(seeds="2", key="page")
    first, again = client.post("/runs/new/", page), client.post("/runs/new/", page)
    assert first["Location"] == again["Location"]
    assert Run.objects.count() == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"grid": "learning_speed: 1, 2"}, "can’t vary “learning_speed”"),
        ({"grid": "learning_rate: 1e-6"}, "two or more different values"),
        ({"grid": "beta: 0, 0"}, "two or more different values"),
        ({"grid": "beta: 0, 0.1\nbeta: 0.2, 0.3"}, "“beta” is listed twice"),
        ({"grid": "seed: 1, 2", "seeds": "2"}, "not both"),
        ({"grid": "beta: 0, 0.1, 0.2", "seeds": "7"}, "This makes 21 runs; the limit is 20"),
        ({"grid": "learning_rate: 1e-6, fast"}, "“fast” for learning_rate: "),
        ({"grid": "beta 0, 0.1"}, "“beta 0, 0.1” has no values"),
        ({"grid": "num_generations: 8, 7"}, "With num generations 7: "),
        ({"grid": "name: a, b"}, "can’t vary “name”"),
    ],
)
def test_what_can_not_be_launched_is_said_and_nothing_is(client: Client, wrong: dict[str, str], says: str) -> None:
    answer = launched(client, **wrong)
    assert answer.status_code == 422
    assert says in answer.content.decode().replace("&quot;", '"')
    assert not Run.objects.exists()
    assert not RunGroup.objects.exists()


def test_a_full_queue_takes_none_of_them(client: Client, settings: Settings) -> None:
    settings.MAX_QUEUED = 2
    answer = launched(client, seeds="3")
    assert (answer.status_code, Run.objects.count()) == (422, 0)


def test_no_more_run_at_once_than_the_group_may(client: Client, commits: Any) -> None:
    launched(client, seeds="3", at_once="1")
    dispatching.dispatch_ready()
    waiting = Attempt.objects.filter(status=RunStatus.QUEUED)
    says = "waits until the running run of its group ends (at most 1 at once)"
    assert list(waiting.values_list("waits_for", flat=True)) == [says, says]
    started = Attempt.objects.get(status=RunStatus.STARTING)
    with commits(execute=True):
        ending.end(started, EndReason.OOM, actor="test", proved_free=True)
    assert Attempt.objects.filter(status=RunStatus.STARTING).exclude(pk=started.pk).count() == 1
    assert waiting.count() == 1
