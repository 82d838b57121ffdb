"""Machines on demand on the Hardware page: sources, their form, and releasing a machine."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from runs.engine.machines.models import Expectation, MachineRequest, MachineSource
from runs.engine.models import Run
from tests.controlplane.people import admin, operator
from tests.runs.builders import ONE_GPU, a_run
from tests.runs.engine.machines.engine import Engine, a_source
from tests.runs.launch.new_run.launching_page import sent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
FILLED: dict[str, Any] = {
    **{
        "name": "Cluster A",
        "control_url": "https://control.example/",
        "enabled": "on",
        "option_folder": "/shared/grpo",
    },
    **{"gpus": 4, "gpu_memory_gib": 80, "cpus": 32, "memory_gib": 0, "minutes": 60},
    **{"most": 2, "idle_minutes": 10, "patience_minutes": 5, "option_partition": "gpu"},
}


def text(client: Client, path: str = "/hardware/") -> str:
    return " ".join(client.get(path).content.decode().split())


def test_an_admin_adds_a_source_and_changes_it() -> None:
    client = admin()
    assert client.post("/hardware/machines/new/slurm/", FILLED).status_code == 302
    source = MachineSource.objects.get()
    assert source.options == {"folder": "/shared/grpo", "partition": "gpu"}
    assert (source.control_url, source.created_by.role) == ("https://control.example", "admin")  # type: ignore[union-attr]
    path = f"/hardware/sources/{source.pk}/"
    assert 'value="/shared/grpo"' in text(client, path)
    client.post(path, {**FILLED, "option_partition": "", "most": 3})
    source.refresh_from_db()
    assert (source.options, source.most) == ({"folder": "/shared/grpo"}, 3)
    assert "4 GPUs with 80 GiB, 32 cores" in text(client)


def test_the_form_tells_what_is_needed_from_what_is_optional() -> None:
    page = text(admin(), "/hardware/machines/new/slurm/")
    for name, word in {"folder": "Shared folder</label>", "partition": 'Partition <span class="optional">'}.items():
        assert f'for="id_option_{name}">{word}' in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("option_partition", "--wrap=id", "Enter the name of a partition"),
        ("option_folder", "", "Shared folder is required."),
        ("control_url", "control.example", "Enter an address such as"),
        ("gpu_kind", "h100 --x", "Use letters, digits"),
        ("most", "0", "At least 1"),
        ("name", "", "Enter a name."),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_saved(field: str, value: str, words: str) -> None:
    answer = admin().post("/hardware/machines/new/slurm/", {**FILLED, field: value})
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not MachineSource.objects.exists()


def test_a_source_with_machines_is_not_deleted(engine: Engine) -> None:
    source, client = a_source(engine), admin()
    request = MachineRequest.objects.create(source=source, host_name="cluster-a-1")
    client.post(f"/hardware/sources/{source.pk}/delete/")
    assert MachineSource.objects.exists()
    request.delete()
    client.post(f"/hardware/sources/{source.pk}/delete/")
    assert not MachineSource.objects.exists()


def test_an_operator_releases_a_machine_after_a_page_that_says_what_follows(engine: Engine) -> None:
    source = a_source(engine)
    row = MachineRequest.objects.create(source=source, host_name="cluster-a-1", state="waiting", handle="1")
    client, path = operator(), f"/hardware/machines/{row.pk}/release/"
    assert "its request is withdrawn" in text(client, path)
    assert client.post(path).status_code == 302
    row.refresh_from_db()
    assert (row.state, row.sentence) == ("released", f"Released by {row.released_by}.")
    assert "This machine is released" in text(client, path)


def test_why_a_run_waits_is_on_its_page_and_in_the_queue(engine: Engine) -> None:
    run = a_run(hardware=ONE_GPU)
    run.attempts.update(waits_for="no host is known yet")
    Expectation.objects.create(attempt=run.latest(), text="A machine of Cluster A is asked for.")
    client = operator()
    for path in ("/hardware/", f"/runs/{run.pk}/"):
        assert "A machine of Cluster A is asked for." in text(client, path)


def test_a_run_that_no_host_can_take_is_launched_for_a_machine(engine: Engine) -> None:
    fields = sent()
    client = operator()
    assert client.post("/runs/new/", fields).status_code == 422
    a_source(engine)
    page = client.post("/runs/new/check", fields).content.decode()
    assert "It requests a machine from Cluster A." in page
    assert client.post("/runs/new/", fields).status_code == 302
    assert Run.objects.get().latest().status == "queued"
